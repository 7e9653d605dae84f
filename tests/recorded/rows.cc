#include "tests/recorded/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace specd::recorded {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kOne = uint64_t{1} << 24;  // probability 1 in units of 2^-24

struct RowText {
  std::string shape;
  uint64_t seed = 0;
  bool has_noise = false;
  uint64_t noise = 0;
};

constexpr std::string_view kShapes[] = {"flat",  "bell",  "spiky",  "ties",    "wide", "fine",
                                        "holes", "peak",  "single", "empty",   "nan",  "inf",
                                        "infs",  "heavy", "loose",  "negative"};

uint64_t Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::runtime_error(fmt::format("\"{}\" is not a number", text));
  }
  return value;
}

RowText Parse(std::string_view text) {
  RowText row;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw std::runtime_error(fmt::format("\"{}\" is not SHAPE:SEED", text));
  }
  row.shape = text.substr(0, colon);
  if (std::find(std::begin(kShapes), std::end(kShapes), row.shape) == std::end(kShapes)) {
    throw std::runtime_error(fmt::format("there is no shape \"{}\"", row.shape));
  }
  std::string_view seed = text.substr(colon + 1);
  if (const size_t tilde = seed.find('~'); tilde != std::string_view::npos) {
    row.has_noise = true;
    row.noise = Number(seed.substr(tilde + 1));
    seed = seed.substr(0, tilde);
  }
  row.seed = Number(seed);
  return row;
}

// The sum of four numbers of 6 bits, about 0: -126 .. 126.
int32_t Bell(uint64_t hash) {
  return static_cast<int32_t>((hash & 63) + (hash >> 6 & 63) + (hash >> 12 & 63) +
                              (hash >> 18 & 63)) -
         126;
}

bool IsHole(uint64_t hash) { return (hash >> 40 & 3) == 0; }
bool IsSpike(uint64_t hash) { return (hash >> 32 & 15) == 0; }

// The id that a shape treats unlike all others.
uint32_t SpecialId(uint64_t seed, uint32_t vocab_size) {
  return static_cast<uint32_t>(Hash(seed, ~uint64_t{0}) % vocab_size);
}

// Bits of a significand, the leading one included.
int SignificandBits(const RowFormat& format) {
  if (format.dtype == "bf16") return 8;
  return format.dtype == "fp16" ? 11 : 24;
}

// A logit of the shapes without a special id.
float LogitOf(const std::string& shape, uint64_t hash, int bits) {
  if (shape == "flat") return static_cast<float>(static_cast<int32_t>(hash & 255) - 128) / 64;
  if (shape == "spiky") return static_cast<float>(Bell(hash) + (IsSpike(hash) ? 128 : 0)) / 16;
  if (shape == "ties") return static_cast<float>(static_cast<int32_t>(hash & 3) - 2);
  if (shape == "wide") return static_cast<float>(static_cast<int32_t>(hash & 511) - 255);
  if (shape == "empty") return -kInfinity;
  if (shape == "fine") {
    const int64_t half = int64_t{1} << (bits - 1);
    const int64_t k = static_cast<int64_t>(hash >> (64 - bits)) - half;
    return static_cast<float>(k) * 8 / static_cast<float>(half);
  }
  return static_cast<float>(Bell(hash)) / 16;
}

// The logit of an id of the row SHAPE:SEED.
float LogitAt(const std::string& shape, uint64_t seed, uint32_t id, uint32_t vocab_size, int bits) {
  const uint64_t hash = Hash(seed, id);
  const uint32_t special = SpecialId(seed, vocab_size);
  if (shape == "holes") return id != special && IsHole(hash) ? -kInfinity : LogitOf("", hash, bits);
  if (shape == "single") return id == special ? 1.0f : -kInfinity;
  if (shape == "infs" && id == (special + 1) % vocab_size) return kInfinity;
  if (id == special) {
    if (shape == "peak") return 12;
    if (shape == "nan") return kNan;
    if (shape == "inf" || shape == "infs") return kInfinity;
  }
  return LogitOf(shape, hash, bits);
}

// The weight of an id in a row of probabilities, below 2^32.
uint64_t WeightAt(const std::string& shape, uint64_t seed, uint32_t id, uint32_t vocab_size) {
  const uint64_t hash = Hash(seed, id);
  const uint32_t special = SpecialId(seed, vocab_size);
  if (shape == "empty") return 0;
  if (shape == "single") return id == special ? 1 : 0;
  if (shape == "holes" && id != special && IsHole(hash)) return 0;
  if (shape == "peak" && id == special) return uint64_t{32} * vocab_size;
  if (shape == "flat") return 1 + (hash & 255);
  if (shape == "ties") return uint64_t{1} << (hash & 3);
  if (shape == "wide") return uint64_t{1} << (hash % 24);
  if (shape == "fine" || shape == "loose") return hash >> 44;
  return (1 + (hash & 15)) * (IsSpike(hash) ? 1 + (hash >> 36 & 255) : 1);
}

std::vector<float> Probabilities(const RowText& row, uint32_t vocab_size) {
  std::vector<uint64_t> weights(vocab_size);
  uint64_t total = 0;
  for (uint32_t id = 0; id < vocab_size; ++id) {
    const bool noisy = row.has_noise && (Hash(row.noise, ~uint64_t{id}) & 3) == 0;
    weights[id] = WeightAt(row.shape, noisy ? row.noise : row.seed, id, vocab_size);
    total += weights[id];
  }
  if (total == 0 || row.shape == "loose") total = kOne;
  std::vector<float> values(vocab_size);
  for (uint32_t id = 0; id < vocab_size; ++id) {
    uint64_t units = weights[id] * kOne / total;
    if (row.shape == "heavy") units *= 2;
    values[id] = static_cast<float>(units) / static_cast<float>(kOne);
  }
  float& special = values[SpecialId(row.seed, vocab_size)];
  if (row.shape == "nan") special = kNan;
  if (row.shape == "inf") special = kInfinity;
  if (row.shape == "negative") special = -0.25f;
  return values;
}

uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t exponent = bits >> 23 & 255;
  if (exponent == 255) {
    return static_cast<uint16_t>(sign | ((bits & 0x7fffff) != 0 ? 0x7e00 : 0x7c00));
  }
  if (exponent == 0) return sign;
  const uint32_t half = ((exponent - 127 + 15) << 10) + (bits >> 13 & 0x3ff);
  if (exponent < 127 - 14 || exponent > 127 + 15 || (bits & 0x1fff) != 0) {
    throw std::runtime_error(fmt::format("{} is not exact in fp16", value));
  }
  return static_cast<uint16_t>(sign | half);
}

uint16_t BrainBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0xffff) != 0) throw std::runtime_error(fmt::format("{} is not exact in bf16", value));
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

uint64_t Hash(uint64_t seed, uint64_t counter) {
  const auto mix = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  return mix(mix(seed) ^ counter);
}

std::vector<float> RowValues(std::string_view text, uint32_t vocab_size, const RowFormat& format) {
  const RowText row = Parse(text);
  if (!format.kind.empty()) return Probabilities(row, vocab_size);
  const int bits = SignificandBits(format);
  std::vector<float> values(vocab_size);
  for (uint32_t id = 0; id < vocab_size; ++id) {
    const bool noisy = row.has_noise && (Hash(row.noise, ~uint64_t{id}) & 3) == 0;
    values[id] = LogitAt(row.shape, noisy ? row.noise : row.seed, id, vocab_size, bits);
  }
  return values;
}

uint32_t ElementBytes(const RowFormat& format) { return format.dtype.empty() ? 4 : 2; }

void StoreRow(const std::vector<float>& values, const RowFormat& format, void* to) {
  if (format.dtype.empty()) {
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    return;
  }
  auto* halves = static_cast<uint16_t*>(to);
  const bool is_brain = format.dtype == "bf16";
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = is_brain ? BrainBits(values[i]) : HalfBits(values[i]);
  }
}

std::vector<uint32_t> MaskWords(std::string_view text, uint32_t vocab_size) {
  std::vector<uint32_t> words((vocab_size + 31) / 32);
  const std::string_view shape = text.substr(0, text.find(':'));
  const uint64_t number = shape == text ? 0 : Number(text.substr(shape.size() + 1));
  for (uint32_t id = 0; id < vocab_size; ++id) {
    const bool allowed = shape == "all" || (shape == "half" && (Hash(number, id) & 1) == 0) ||
                         (shape == "one" && id == number % vocab_size);
    if (allowed) words[id / 32] |= uint32_t{1} << (id % 32);
  }
  return words;
}

}  // namespace specd::recorded
