#include "kernels/core/numerics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/grid_size.h"

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
      // Weights have all sizes, denormals and zero among them, as far below E as floats go.
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

  // The processor's own division gives the expected value, which IEEE 754 defines to the bit. If
  // the better inverse is the nearest float, and the first quotient is within an ulp, the quotient
  // is right for every dividend (Markstein). First quotients that are further off are tried at
  // random, and so are sizes and signs. If the better inverse is not the nearest float, every
  // dividend is tried.
  TEST_CASE("the steps of a division on a GPU are right for every middling divisor") {
    const auto try_all = [](float b, float inverse) {
      int64_t num_wrong = 0;
      const uint32_t step = GridSize({.full = 1, .sanitized = 61});
      for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += step) {
        const float a = FloatOf(BitsOf(1.0f) | mantissa);
        num_wrong += internal::QuotientOfMiddling(a, b, inverse) != a / b ? 1 : 0;
      }
      CAPTURE(b);
      CAPTURE(inverse);
      CHECK(num_wrong == 0);
    };
    int num_tried = 0;
    for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
      const float b = FloatOf(BitsOf(1.0f) | mantissa);
      if (!internal::IsMiddlingDivisor(b)) continue;
      for (const uint32_t off : {~0u, 0u, 1u}) {
        const float inverse = FloatOf(BitsOf(1.0f / b) + off);
        if (internal::BetterInverse(b, inverse) == 1.0f / b && mantissa % 1000003 != 7) continue;
        try_all(b, inverse);
        ++num_tried;
      }
    }
    CHECK(num_tried >= 27);
    CHECK(num_tried < 100);
    // Signs and sizes.
    std::mt19937 random(3);
    for (int i = 0; i < 1000000; ++i) {
      const float a = FloatOf(BitsOf(0x1p-60f) + (random() % 120 << 23) + random() % (1u << 23));
      float b = FloatOf(BitsOf(0x1p-60f) + (random() % 120 << 23) + random() % (1u << 23));
      if (random() % 2 != 0) b = -b;
      if (!internal::IsMiddlingDivisor(b)) continue;
      REQUIRE(internal::IsMiddling(a));
      REQUIRE(internal::QuotientOfMiddling(a, b, 1.0f / b) == a / b);
    }
  }

  TEST_CASE("a division by doubles is right for any two floats") {
    std::mt19937_64 random(4);
    const auto check = [&](float a, float b) {
      double inverse = 1.0 / static_cast<double>(b);
      inverse *=
          1.0 + static_cast<double>(static_cast<int64_t>(random() % 2001) - 1000) / 1000 / 1024;
      const float found = internal::QuotientByDoubles(a, b, inverse);
      const bool same = IsNan(a / b) ? IsNan(found) : BitsOf(found) == BitsOf(a / b);
      if (same) return;
      CAPTURE(a);
      CAPTURE(b);
      FAIL("not the quotient");
    };
    std::vector<float> special;
    for (const uint32_t bits :
         {0x0u, 0x1u, 0x2u, 0x3u, 0x5u, 0x7FFFFFu, 0x7FFFFEu, 0x800000u, 0x800001u, 0xFFFFFFu,
          0x3F7FFFFFu, 0x3F800000u, 0x3F800001u, 0x40400000u, 0x7F7FFFFFu, 0x7F7FFFFEu, 0x7F000000u,
          0x7F800000u, 0x7FC00000u}) {
      special.push_back(FloatOf(bits));
      special.push_back(FloatOf(bits | 0x80000000u));
    }
    for (const float a : special) {
      for (const float b : special) check(a, b);
    }
    for (int i = 0; i < 3000000; ++i) {
      const auto any = [&] { return FloatOf(static_cast<uint32_t>(random())); };
      // Quotients that are denormal, and those between the largest float and infinity, are rare.
      const auto small = [&] { return FloatOf(static_cast<uint32_t>(random()) % (3u << 23)); };
      const auto below_one = [&] {
        return FloatOf(BitsOf(0x1p-8f) + static_cast<uint32_t>(random()) % (8u << 23));
      };
      const float divisor = below_one();
      const float most = std::nextafterf(divisor * 0x1.fffffep+127f, 0);
      check(any(), any());
      check(small(), any());
      check(small(), small());
      check(FloatOf(BitsOf(most) + random() % 4), divisor);
      check(any(), special[random() % special.size()]);
    }
  }

  // Catches a GPU that draws another token, because its quotient is off by 1.
  TEST_CASE("MulDivByDoubles is MulDiv for weights of draws") {
    std::mt19937_64 random(41);
    const auto below = [&](uint64_t end) { return random() % end; };
    const auto check = [](uint64_t a, uint64_t b, uint64_t c) {
      if (internal::MulDivByDoubles(a, b, c) == MulDiv(a, b, c)) return;
      CAPTURE(a);
      CAPTURE(b);
      CAPTURE(c);
      FAIL("not the quotient");
    };
    constexpr uint64_t kMostOfTile = (uint64_t{1} << 52) - 1;
    constexpr uint64_t kMost = uint64_t{1} << 41;
    for (int i = 0; i < 2000000; ++i) {
      const uint64_t c = 1 + below(uint64_t{1} << (1 + below(41)));
      const uint64_t b = below(uint64_t{1} << (1 + below(52)));
      check(below(c), b, c);
      check(c - 1, kMostOfTile - below(1000), c);
      const uint64_t multiple = c * (b / c);  // whole quotients, and those just below
      check(below(c), multiple, c);
      if (multiple > 0) check(below(c), multiple - 1, c);
    }
    for (const uint64_t c : {kMost, kMost - 1, kMost / 2 + 1}) {
      for (uint64_t a = 0; a < 1000; ++a) {
        for (const uint64_t b : {kMostOfTile, kMostOfTile - 1, kMostOfTile / 2, c, c - 1}) {
          check(c - 1 - a, b, c);
          check(a, b, c);
        }
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
