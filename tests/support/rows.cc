#include "tests/support/rows.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace specd {

namespace {

struct Format {
  int mantissa_bits;
  int min_exponent;  // of normal numbers
  int max_exponent;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {23, -126, 127};
    case DType::kBFloat16:
      return {7, -126, 127};
    case DType::kFloat16:
      return {10, -14, 15};
  }
  return {};
}

// The pattern of a value that the format holds exactly.
uint32_t Encode(const Format& format, double value) {
  const int exponent_bits = format.mantissa_bits == 10 ? 5 : 8;
  const uint32_t sign = std::signbit(value) ? 1u << (format.mantissa_bits + exponent_bits) : 0u;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return infinity | 1u;
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const auto scaled =
      static_cast<uint32_t>(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  const uint32_t hidden = 1u << format.mantissa_bits;
  if (scaled < hidden) return sign | scaled;
  const auto biased = static_cast<uint32_t>(exponent - format.min_exponent + 1);
  return sign | (biased << format.mantissa_bits) | (scaled - hidden);
}

}  // namespace

double RoundTo(DType dtype, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const Format format = FormatOf(dtype);
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  if (exponent > format.max_exponent) return std::copysign(INFINITY, value);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  return std::trunc(value / unit) * unit;
}

RowMatrix::RowMatrix(const Options& options)
    : options_(options),
      memory_(static_cast<size_t>(
                  (options.offset + options.num_rows * (options.vocab_size + options.padding)) *
                  SizeBytes(options.dtype)),
              0xFF) {}

std::vector<double> RowMatrix::Set(int64_t row, const std::vector<double>& values) {
  SPECD_CHECK(static_cast<int32_t>(values.size()) == options_.vocab_size);
  const Format format = FormatOf(options_.dtype);
  const int64_t element_bytes = SizeBytes(options_.dtype);
  const int64_t first = options_.offset + row * (options_.vocab_size + options_.padding);
  std::vector<double> stored;
  for (size_t i = 0; i < values.size(); ++i) {
    stored.push_back(RoundTo(options_.dtype, values[i]));
    const uint32_t bits = Encode(format, stored.back());
    // Little-endian: the low bytes come first.
    std::memcpy(&memory_[(first + static_cast<int64_t>(i)) * element_bytes], &bits,
                static_cast<size_t>(element_bytes));
  }
  return stored;
}

TensorView RowMatrix::view() const {
  TensorView view;
  view.data = memory_.data() + options_.offset * SizeBytes(options_.dtype);
  view.dtype = options_.dtype;
  view.num_rows = options_.num_rows;
  view.row_stride = options_.vocab_size + options_.padding;
  view.vocab_size = options_.vocab_size;
  view.rules = options_.rules;
  return view;
}

std::vector<double> RandomLogits(std::mt19937_64& random, int32_t vocab_size, double sigma) {
  std::normal_distribution<double> noise(0, sigma);
  std::vector<double> logits(static_cast<size_t>(vocab_size));
  for (double& x : logits) x = noise(random);
  for (int spike = 0; spike < 3; ++spike) logits[random() % logits.size()] += 4;
  return logits;
}

}  // namespace specd
