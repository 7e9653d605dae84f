#include "kernels/core/numerics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace specd {
namespace {

// The error of a float in units of the last place of the true value.
double ErrorUlp(float value, long double truth) {
  const int exponent = std::max(std::ilogb(static_cast<double>(truth)), -126);
  return std::fabs(static_cast<double>((value - truth) / std::ldexp(1.0L, exponent - 23)));
}

TEST_SUITE("unit") {
  TEST_CASE("Exp2 is within 1 ulp of 2^x from 0 down to -126") {
    double worst = 0;
    float previous = 1;
    bool monotonic_between_octaves = true;
    // Every 97th float of the domain: about 11 million points.
    for (uint32_t bits = 0; bits <= BitsOf(126.0f); bits += 97) {
      const float x = -FloatOf(bits);
      const float y = Exp2(x);
      worst = std::max(worst, ErrorUlp(y, exp2l(static_cast<long double>(x))));
      if (std::floor(x) == x && y > previous) monotonic_between_octaves = false;
      if (std::floor(x) == x) previous = y;
    }
    MESSAGE("worst error of Exp2: ", worst, " ulp");
    CHECK(worst < 1.0);
    CHECK(monotonic_between_octaves);
  }

  TEST_CASE("Exp2 is exact at integers and nothing below -126") {
    for (int n = 0; n >= -126; --n) CHECK(Exp2(static_cast<float>(n)) == std::ldexp(1.0f, n));
    CHECK(BitsOf(Exp2(-0.0f)) == BitsOf(1.0f));
    CHECK(BitsOf(Exp2(std::nextafterf(-126.0f, -200.0f))) == 0);
    CHECK(BitsOf(Exp2(-1e30f)) == 0);
    CHECK(BitsOf(Exp2(-kInfinity)) == 0);
  }

  TEST_CASE("Log2 is within 2 ulp over all normal numbers") {
    double worst_far = 0;
    double worst_near = 0;
    for (uint32_t bits = 0x00800000u; bits < 0x7F800000u; bits += 211) {
      const float x = FloatOf(bits);
      const long double truth = log2l(static_cast<long double>(x));
      if (truth == 0) continue;
      double& worst = std::fabs(static_cast<double>(truth)) >= 0.5 ? worst_far : worst_near;
      worst = std::max(worst, ErrorUlp(Log2(x), truth));
    }
    // Where the relative error is hardest: every float around 1.
    for (uint32_t bits = BitsOf(0.99f); bits <= BitsOf(1.01f); ++bits) {
      const float x = FloatOf(bits);
      if (x == 1.0f) continue;
      worst_near = std::max(worst_near, ErrorUlp(Log2(x), log2l(static_cast<long double>(x))));
    }
    MESSAGE("worst error of Log2: ", worst_far, " ulp, ", worst_near, " ulp near 1");
    CHECK(worst_far <= 2.0);
    CHECK(worst_near <= 2.0);
    CHECK(BitsOf(Log2(1.0f)) == 0);
    for (int n = -126; n <= 127; ++n) CHECK(Log2(std::ldexp(1.0f, n)) == static_cast<float>(n));
  }

  TEST_CASE("ExponentOf agrees with frexp, and stops at -126 for denormals") {
    std::mt19937 random(1);
    for (int i = 0; i < 100000; ++i) {
      const float w = FloatOf(random() % 0x7F800000u);
      if (w == 0) continue;
      int exponent;
      static_cast<void>(std::frexp(w, &exponent));
      REQUIRE(ExponentOf(w) == std::max(exponent - 1, -126));
    }
  }

  TEST_CASE("IntegerWeight is w * 2^(40 - E), truncated") {
    std::mt19937 random(2);
    for (int i = 0; i < 200000; ++i) {
      // Of all sizes, denormals and zero among them, as far below E as floats go.
      const float w = FloatOf(random() % 0x7F800000u >> (i % 4 == 0 ? 8 : 0));
      const int32_t exponent =
          std::min(ExponentOf(w) + static_cast<int32_t>(random() % 60), int32_t{127});
      const double scaled = std::trunc(std::ldexp(static_cast<double>(w), 40 - exponent));
      REQUIRE(static_cast<double>(IntegerWeight(w, exponent)) == scaled);
    }
    CHECK(IntegerWeight(1.0f, 0) == uint64_t{1} << 40);
    CHECK(IntegerWeight(std::nextafterf(2.0f, 0.0f), 0) < uint64_t{1} << 41);
  }

  TEST_CASE("IntegerWeight of what is no weight is a small integer all the same") {
    for (const float w : {kInfinity, -kInfinity, -1.0f, __builtin_nanf("")}) {
      for (int32_t exponent = -126; exponent <= 128; ++exponent) {
        CHECK(IntegerWeight(w, exponent) < uint64_t{1} << 41);
      }
    }
  }

  TEST_CASE("MulDiv keeps all 128 bits") {
    CHECK(MulDiv(uint64_t{1} << 60, uint64_t{1} << 60, uint64_t{1} << 59) == uint64_t{1} << 61);
    CHECK(MulDiv(999999999999999999u, 1000000007u, 1000000007u) == 999999999999999999u);
    CHECK(MulDiv(7, 3, 2) == 10);
  }

  TEST_CASE("PositivePart drops signs and NaNs") {
    CHECK(PositivePart(2.5f) == 2.5f);
    CHECK(BitsOf(PositivePart(-1.0f)) == 0);
    CHECK(BitsOf(PositivePart(-0.0f)) == 0);
    CHECK(BitsOf(PositivePart(__builtin_nanf(""))) == 0);
  }
}

}  // namespace
}  // namespace specd
