#include "kernels/core/elements.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/rows.h"

namespace specd {
namespace {

// The value of a 16-bit pattern, from the definition of the format.
double ValueOf(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int biased = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (biased == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (biased == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign * std::ldexp(fraction + (1 << mantissa_bits), biased - bias - mantissa_bits);
}

void CheckSame(float value, double expected) {
  if (std::isnan(expected)) {
    REQUIRE(std::isnan(value));
    return;
  }
  REQUIRE(static_cast<double>(value) == expected);
  REQUIRE(std::signbit(value) == std::signbit(expected));
}

TEST_SUITE("unit") {
  TEST_CASE("all 65,536 bfloat16 and float16 patterns convert exactly") {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      CheckSame(BFloat16ToFloat(static_cast<uint16_t>(bits)), ValueOf(bits, 7));
      CheckSame(Float16ToFloat(static_cast<uint16_t>(bits)), ValueOf(bits, 10));
    }
  }

  TEST_CASE("rows are read at their own type, stride and alignment") {
    std::mt19937_64 random(3);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      RowMatrix matrix(
          {.dtype = dtype, .vocab_size = 37, .num_rows = 3, .padding = 4, .offset = 1});
      for (int row = 0; row < 3; ++row) {
        const std::vector<double> stored = matrix.Set(row, RandomLogits(random, 37));
        for (int i = 0; i < 37; ++i) {
          CHECK(static_cast<double>(LoadElement(matrix.row(row), i)) == stored[i]);
        }
      }
    }
  }

  TEST_CASE("row offsets are 64-bit") {
    // 2,048 rows of 2^20 floats: the last row begins past 2^32 bytes.
    const TensorView view{nullptr, DType::kFloat32, 2048, int64_t{1} << 20, 1 << 20, {}};
    const auto begin = reinterpret_cast<uintptr_t>(RowAt(view, 2047).data);
    CHECK(begin == uintptr_t{2047} << 22);
  }
}

}  // namespace
}  // namespace specd
