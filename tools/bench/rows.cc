#include "tools/bench/rows.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/core/check.h"

namespace specd::bench {
namespace {

constexpr uint64_t kTargetSeed = 20;
constexpr uint64_t kDrafterSeed = 21;
constexpr size_t kNumTemplates = 8;

using Row = std::vector<float>;

Row MakeTemplate(RowShape shape, int32_t vocab_size, std::mt19937_64* random) {
  const bool is_flat = shape == RowShape::kFlat;
  std::normal_distribution<float> bulk(is_flat ? 0.0f : -1.0f, is_flat ? 1.0f : 2.2f);
  Row row(static_cast<size_t>(vocab_size));
  for (float& value : row) value = bulk(*random);
  if (is_flat) return row;
  // A head of values on ids drawn at random. Mass falls by exp(-step) from id to id, so .95 of it
  // lies on ln(20) / step ids.
  const float step = std::uniform_real_distribution<float>(0.13f, 0.30f)(*random);
  const float top = std::uniform_real_distribution<float>(16, 22)(*random);
  std::uniform_int_distribution<size_t> any_id(0, row.size() - 1);
  for (int32_t i = 0; i < 200; ++i) {
    float& value = row[any_id(*random)];
    value = std::max(value, top - step * static_cast<float>(i));
  }
  return row;
}

std::vector<Row> MakeTemplates(const RowSpec& spec) {
  if (!spec.given.empty()) return spec.given;
  std::mt19937_64 random(kTargetSeed);
  std::vector<Row> rows;
  for (size_t i = 0; i < kNumTemplates; ++i) {
    rows.push_back(MakeTemplate(spec.shape, spec.vocab_size, &random));
  }
  return rows;
}

// Converts a template to the pool's own type: a bf16 is the upper half of a float.
std::vector<std::byte> Encode(const Row& row, DType dtype) {
  const auto size_bytes = static_cast<size_t>(SizeBytes(dtype));
  std::vector<std::byte> bytes;
  for (const float& value : row) {
    const auto* const end = reinterpret_cast<const std::byte*>(&value + 1);
    bytes.insert(bytes.end(), end - size_bytes, end);
  }
  return bytes;
}

}  // namespace

RowPool::RowPool(const RowSpec& spec) : spec_(spec) {
  SPECD_CHECK(spec.vocab_size >= 1 && spec.num_rows >= 1 && spec.dtype != DType::kFloat16);
  std::vector<Row> templates = MakeTemplates(spec);
  std::mt19937_64 random(kDrafterSeed);
  std::normal_distribution<float> noise(0.0f,
                                        spec.noise > 0 ? static_cast<float>(spec.noise) : 0.3f);
  for (Row& row : templates) {
    const auto best = std::max_element(row.begin(), row.end());
    const auto worst = std::min_element(row.begin(), row.end());
    ranks_.push_back(
        {static_cast<TokenId>(best - row.begin()), static_cast<TokenId>(worst - row.begin())});
    if (!spec.drafter) continue;
    const float top = *best;
    for (float& value : row) value += noise(random);
    if (spec.noise > 0) continue;
    *best = top - 1;
    *worst = top;
  }
  std::vector<std::vector<std::byte>> encoded;
  for (const Row& row : templates) encoded.push_back(Encode(row, spec.dtype));
  bytes_.reset(static_cast<std::byte*>(
      ::operator new[](static_cast<size_t>(spec.num_rows * row_bytes()), kAlignment)));
  for (int64_t row = 0; row < spec.num_rows; ++row) {
    // Element i of the template becomes element (i + shift) mod V.
    const std::vector<std::byte>& source = encoded[TemplateOf(row)];
    const auto moved = static_cast<size_t>(ShiftOf(row) * SizeBytes(spec.dtype));
    std::byte* out = bytes_.get() + row * row_bytes();
    std::memcpy(out + moved, source.data(), source.size() - moved);
    std::memcpy(out, source.data() + source.size() - moved, moved);
  }
}

int32_t RowPool::ShiftOf(int64_t row) const {
  if (!spec_.given.empty()) return 0;
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
