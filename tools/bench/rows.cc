#include "tools/bench/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "kernels/core/numerics.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr int64_t kFileRowsMax = 64;
constexpr uint64_t kTargetSeed = 20;
constexpr uint64_t kDrafterSeed = 21;

using Row = std::vector<float>;

// By RowShape.
constexpr std::string_view kShapeNames[] = {"llm", "spikes", "flat", "ascending", "file"};

float Uniform(float low, float high, std::mt19937_64* random) {
  return std::uniform_real_distribution<float>(low, high)(*random);
}

void FillNormal(float mean, float deviation, std::mt19937_64* random, Row* row) {
  std::normal_distribution<float> normal(mean, deviation);
  for (float& value : *row) value = normal(*random);
}

// Puts values of `count` steps down from `top` on ids drawn at random.
void AddHead(int32_t count, float top, float step, std::mt19937_64* random, Row* row) {
  std::uniform_int_distribution<size_t> any_id(0, row->size() - 1);
  for (int32_t i = 0; i < count; ++i) {
    float& value = (*row)[any_id(*random)];
    value = std::max(value, top - step * static_cast<float>(i));
  }
}

Row MakeTemplate(RowShape shape, int32_t vocab_size, std::mt19937_64* random) {
  Row row(static_cast<size_t>(vocab_size));
  switch (shape) {
    case RowShape::kLlm:
      // Mass falls by exp(-step) from id to id, so .95 of it lies on ln(20) / step ids.
      FillNormal(-1.0f, 2.2f, random, &row);
      AddHead(200, Uniform(16, 22, random), Uniform(0.13f, 0.30f, random), random, &row);
      break;
    case RowShape::kSpikes:
      FillNormal(-8.0f, 1.0f, random, &row);
      AddHead(5, 10.0f, 0.5f, random, &row);
      break;
    case RowShape::kAscending:
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = 20.0f * static_cast<float>(i) / static_cast<float>(row.size());
      }
      break;
    case RowShape::kFlat:
    case RowShape::kFile:
      FillNormal(0.0f, 1.0f, random, &row);
      break;
  }
  return row;
}

absl::StatusOr<std::vector<Row>> ReadTemplates(const RowSpec& spec) {
  const int64_t row_bytes = spec.vocab_size * SizeBytes(DType::kFloat32);
  std::error_code error;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(spec.path, error));
  if (error) {
    return absl::InvalidArgumentError(
        fmt::format("rows = {} cannot be read ({}): give llm, spikes, flat, ascending or a file of "
                    "fp32 rows",
                    spec.path, error.message()));
  }
  if (size_bytes == 0 || size_bytes % row_bytes != 0) {
    return absl::InvalidArgumentError(
        fmt::format("rows = {} holds {} bytes, which is not a positive multiple of {} fp32 "
                    "elements: give --vocab as it was recorded with",
                    spec.path, size_bytes, spec.vocab_size));
  }
  const int64_t num_rows = std::min(size_bytes / row_bytes, kFileRowsMax);
  std::ifstream file(spec.path, std::ios::binary);
  std::vector<Row> rows(static_cast<size_t>(num_rows), Row(static_cast<size_t>(spec.vocab_size)));
  for (Row& row : rows) file.read(reinterpret_cast<char*>(row.data()), row_bytes);
  if (!file) return absl::InvalidArgumentError(fmt::format("rows = {}: read failed", spec.path));
  return rows;
}

absl::StatusOr<std::vector<Row>> MakeTemplates(const RowSpec& spec) {
  if (spec.shape == RowShape::kFile) return ReadTemplates(spec);
  std::mt19937_64 random(kTargetSeed);
  std::vector<Row> rows;
  for (size_t i = 0; i < spec.num_templates; ++i) {
    rows.push_back(MakeTemplate(spec.shape, spec.vocab_size, &random));
  }
  return rows;
}

uint16_t ToBFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if (IsNan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);  // to nearest even
}

// Converts a template to the pool's own type.
std::vector<std::byte> Encode(const Row& row, DType dtype) {
  std::vector<std::byte> bytes(row.size() * static_cast<size_t>(SizeBytes(dtype)));
  if (dtype == DType::kFloat32) {
    std::memcpy(bytes.data(), row.data(), bytes.size());
    return bytes;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t bits = ToBFloat16(row[i]);
    std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return bytes;
}

}  // namespace

RowShape ParseRowShape(std::string_view name) {
  const auto* const found = std::ranges::find(kShapeNames, name);
  return found == std::end(kShapeNames) ? RowShape::kFile
                                        : static_cast<RowShape>(found - kShapeNames);
}

std::string_view RowShapeName(RowShape shape) { return kShapeNames[static_cast<size_t>(shape)]; }

absl::StatusOr<RowPool> RowPool::Make(const RowSpec& spec) {
  SPECD_CHECK(spec.vocab_size >= 1 && spec.num_rows >= 1 && spec.dtype != DType::kFloat16);
  SPECD_TAKE(std::vector<Row> templates, MakeTemplates(spec));
  RowPool pool;
  pool.spec_ = spec;
  std::mt19937_64 random(kDrafterSeed);
  std::normal_distribution<float> noise(0.0f,
                                        spec.noise > 0 ? static_cast<float>(spec.noise) : 0.3f);
  for (Row& row : templates) {
    const auto best = std::max_element(row.begin(), row.end());
    const auto worst = std::min_element(row.begin(), row.end());
    pool.ranks_.push_back(
        {static_cast<TokenId>(best - row.begin()), static_cast<TokenId>(worst - row.begin())});
    if (!spec.drafter) continue;
    const float top = *best;
    for (float& value : row) value += noise(random);
    if (spec.noise > 0) continue;
    *best = top - 1;
    *worst = top;
  }
  pool.bytes_.reset(static_cast<std::byte*>(
      ::operator new[](static_cast<size_t>(spec.num_rows * pool.row_bytes()), kAlignment)));
  pool.Fill(templates);
  return pool;
}

void RowPool::Fill(const std::vector<std::vector<float>>& templates) {
  std::vector<std::vector<std::byte>> encoded;
  for (const Row& row : templates) encoded.push_back(Encode(row, spec_.dtype));
  for (int64_t row = 0; row < spec_.num_rows; ++row) {
    // Element i of the template becomes element (i + shift) mod V.
    const std::vector<std::byte>& source = encoded[TemplateOf(row)];
    const auto moved = static_cast<size_t>(ShiftOf(row) * SizeBytes(spec_.dtype));
    std::byte* out = bytes_.get() + row * row_bytes();
    std::memcpy(out + moved, source.data(), source.size() - moved);
    std::memcpy(out, source.data() + source.size() - moved, moved);
  }
}

int32_t RowPool::ShiftOf(int64_t row) const {
  // Recorded and ascending rows depend on their order, so they are not rotated.
  if (spec_.shape == RowShape::kFile || spec_.shape == RowShape::kAscending) return 0;
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / phi: spreads neighbours far apart
  const auto hash = static_cast<uint64_t>(row) * kGolden >> 32;
  return static_cast<int32_t>(hash % static_cast<uint64_t>(spec_.vocab_size));
}

TensorView RowPool::view() const {
  return {.data = bytes_.get(),
          .dtype = spec_.dtype,
          .num_rows = spec_.num_rows,
          .row_stride = spec_.vocab_size,
          .vocab_size = spec_.vocab_size,
          .rules = {}};
}

}  // namespace specd::bench
