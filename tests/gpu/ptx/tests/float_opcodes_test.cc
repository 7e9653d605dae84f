// Floating-point numbers in the PTX machine, against the host's arithmetic of wider numbers.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// A quadruple holds every sum and product of two doubles of the edge values closely enough: its
// rounding to the narrower type is the only one.
using Quadruple = __float128;

const float kNan = std::bit_cast<float>(0x7FFFFFFFu);

// PTX ISA: the NaN of a result of 32 bits is canonical.
float AsFloat(double value) { return std::isnan(value) ? kNan : static_cast<float>(value); }

// The exact a * b + c, rounded once. A quadruple holds the product. Where it does not hold the sum,
// the sum is rounded to an odd quadruple, which the second rounding does not take for a tie (Boldo
// and Melquiond, "When double rounding is odd", 2005).
template <typename Value>
Value FusedOf(Value a, Value b, Value c) {
  const Quadruple product = Quadruple{a} * Quadruple{b};
  const Quadruple addend = c;
  Quadruple sum = product + addend;
  if (sum != sum) return static_cast<Value>(kNan);
  const Quadruple taken = sum - product;
  const Quadruple lost = (product - (sum - taken)) + (addend - taken);  // Knuth's exact error
  if (std::isfinite(static_cast<Value>(sum)) && lost != 0) {
    auto bits = std::bit_cast<unsigned __int128>(sum);
    if ((lost < 0) != (sum < 0)) --bits;  // it was rounded away from zero
    sum = std::bit_cast<Quadruple>(bits | 1);
  }
  return static_cast<Value>(sum);
}

// Numbers of both signs, of zero too, in order.
template <typename Value>
bool IsBelow(Value a, Value b) {
  if (a == b) return std::signbit(a) && !std::signbit(b);
  return a < b;
}

template <typename Value>
void CheckExtremes(const std::string& type, Value nan_of_two) {
  const auto pick = [=](Value a, Value b, bool larger) {
    if (std::isnan(a) && std::isnan(b)) return sizeof(Value) == 4 ? nan_of_two : b;
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    return IsBelow(a, b) == larger ? b : a;
  };
  CheckOpcode<Value, Value, Value>("max." + type,
                                   [&](Value a, Value b) { return pick(a, b, true); });
  CheckOpcode<Value, Value, Value>("min." + type,
                                   [&](Value a, Value b) { return pick(a, b, false); });
}

template <typename Value>
void CheckComparisons(const std::string& type) {
  const auto check = [&](const std::string& name, auto holds) {
    // The predicate as a number.
    const std::string opcode =
        ".reg .pred %c; setp." + name + "." + type + " %c, %s0, %s1; selp.b32 %d, 1, 0, %c; //";
    CheckOpcode<uint32_t, Value, Value>(opcode,
                                        [&](Value a, Value b) { return holds(a, b) ? 1u : 0u; });
  };
  const auto is_nan = [](Value a, Value b) { return std::isnan(a) || std::isnan(b); };
  check("eq", [](Value a, Value b) { return std::islessequal(a, b) && std::isgreaterequal(a, b); });
  check("ne", [](Value a, Value b) { return std::islessgreater(a, b); });
  check("lt", [](Value a, Value b) { return std::isless(a, b); });
  check("le", [](Value a, Value b) { return std::islessequal(a, b); });
  check("gt", [](Value a, Value b) { return std::isgreater(a, b); });
  check("ge", [](Value a, Value b) { return std::isgreaterequal(a, b); });
  check("equ", [&](Value a, Value b) { return is_nan(a, b) || !std::islessgreater(a, b); });
  check("neu", [&](Value a, Value b) { return is_nan(a, b) || std::islessgreater(a, b); });
  check("ltu", [&](Value a, Value b) { return is_nan(a, b) || std::isless(a, b); });
  check("leu", [&](Value a, Value b) { return is_nan(a, b) || std::islessequal(a, b); });
  check("gtu", [&](Value a, Value b) { return is_nan(a, b) || std::isgreater(a, b); });
  check("geu", [&](Value a, Value b) { return is_nan(a, b) || std::isgreaterequal(a, b); });
  check("num", [&](Value a, Value b) { return !is_nan(a, b); });
  check("nan", is_nan);
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: float sums, products and quotients are rounded once, to nearest even") {
    CheckOpcode<float, float, float>(
        "add.rn.f32", [](float a, float b) { return AsFloat(double{a} + double{b}); });
    CheckOpcode<float, float, float>(
        "sub.rn.f32", [](float a, float b) { return AsFloat(double{a} - double{b}); });
    CheckOpcode<float, float, float>(
        "mul.rn.f32", [](float a, float b) { return AsFloat(double{a} * double{b}); });
    CheckOpcode<float, float, float>(
        "div.rn.f32", [](float a, float b) { return AsFloat(double{a} / double{b}); });
    CheckOpcode<float, float, float, float>(
        "fma.rn.f32", [](float a, float b, float c) { return FusedOf(a, b, c); });
    CheckOpcode<float, float>("rcp.rn.f32", [](float a) { return AsFloat(1 / double{a}); });
  }

  TEST_CASE("PTX machine: extremes prefer numbers to NaN, and +0 to -0") {
    CheckExtremes<float>("f32", kNan);
    CheckExtremes<double>("f64", 0);
    CheckOpcode<float, float, float>("max.NaN.f32", [](float a, float b) {
      return std::isnan(a) || std::isnan(b) ? kNan : IsBelow(a, b) ? b : a;
    });
    CheckOpcode<float, float, float>("min.NaN.f32", [](float a, float b) {
      return std::isnan(a) || std::isnan(b) ? kNan : IsBelow(a, b) ? a : b;
    });
  }

  TEST_CASE("PTX machine: comparisons of floats, ordered and unordered") {
    CheckComparisons<float>("f32");
    CheckComparisons<double>("f64");
  }

  TEST_CASE("PTX machine: approximations stay within the manual's bounds") {
    const auto check = [](const LaunchOptions& options, bool expects_errors) {
      std::vector<std::tuple<float>> rows;
      for (int i = 0; i < 4000; ++i)
        rows.emplace_back(std::ldexp(1.0f + i / 4000.0f, i % 200 - 100));
      const auto results = RunRows<float, float>("rcp.approx.f32",
                                                 std::span<const std::tuple<float>>(rows), options);
      int num_off = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        const double exact = 1.0 / double{std::get<0>(rows[i])};
        const double unit =
            std::nextafter(static_cast<float>(exact), INFINITY) - static_cast<float>(exact);
        REQUIRE(std::abs(results[i] - exact) <= unit);
        num_off += results[i] != static_cast<float>(exact) ? 1 : 0;
      }
      CHECK((num_off > 1000) == expects_errors);
    };
    check({}, false);
    check({.seed = 1, .has_rough_reciprocals = true}, true);
    check({.seed = 2, .has_rough_reciprocals = true}, true);
    // Zero, infinity and NaN, as the manual's table has it; powers of two exactly.
    for (const bool is_rough : {false, true}) {
      const std::vector<std::tuple<float>> rows = {{0.0f}, {-0.0f}, {INFINITY}, {-INFINITY},
                                                   {NAN},  {4.0f},  {1.0f}};
      const auto results =
          RunRows<float, float>("rcp.approx.f32", std::span<const std::tuple<float>>(rows),
                                {.has_rough_reciprocals = is_rough});
      CHECK(results[0] == INFINITY);
      CHECK(results[1] == -INFINITY);
      CHECK(BitsOf(results[2]) == BitsOf(0.0f));
      CHECK(BitsOf(results[3]) == BitsOf(-0.0f));
      CHECK(BitsOf(results[4]) == BitsOf(kNan));
      CHECK(results[5] == 0.25f);
      CHECK(results[6] == 1.0f);
    }
  }

  TEST_CASE("PTX machine: the approximate reciprocal of a double is an upper word") {
    const auto run = [](double a) {
      const std::vector<std::tuple<double>> rows = {{a}};
      return RunRows<double, double>("rcp.approx.ftz.f64",
                                     std::span<const std::tuple<double>>(rows), {})[0];
    };
    // Within 2^-20 or so of the true value.
    for (const double a : {3.0, 1e300, -7.5, 1.0, 0x1p-1022, -0x1.fffffp-1022, 0x1p1021}) {
      CHECK((BitsOf(run(a)) & 0xFFFFFFFFu) == 0);
      CHECK(std::abs(run(a) * a - 1) < 0x1p-19);
    }
    // The manual's table. Denormals count as zeros, and a result that is one becomes a zero.
    for (const double sign : {1.0, -1.0}) {
      for (const double zero : {0.0, 0x1p-1074, 0x1p-1023}) {
        CHECK(run(sign * zero) == sign * INFINITY);
      }
      for (const double large : {double{INFINITY}, 0x1p1023, 0x1.fffffp1023}) {
        CHECK(BitsOf(run(sign * large)) == BitsOf(sign * 0.0));
      }
    }
    CHECK(std::isnan(run(NAN)));
    CHECK((BitsOf(run(NAN)) & 0xFFFFFFFFu) == 0);
  }

  TEST_CASE("PTX machine: the approximate exp2 stays within the manual's bound") {
    std::vector<std::tuple<float>> rows;
    for (int i = -130 * 64; i <= 130 * 64; ++i)
      rows.emplace_back(static_cast<float>(i) / 64 + 0.003f);
    for (const float value : EdgeValues<float>()) rows.emplace_back(value);
    const auto results =
        RunRows<float, float>("ex2.approx.ftz.f32", std::span<const std::tuple<float>>(rows), {});
    for (size_t i = 0; i < rows.size(); ++i) {
      const float a = std::get<0>(rows[i]);
      CAPTURE(a);
      if (std::isnan(a)) {
        CHECK(BitsOf(results[i]) == BitsOf(kNan));
        continue;
      }
      const long double exact = std::exp2(static_cast<long double>(a));
      if (exact < 0x1p-126L) {
        CHECK(BitsOf(results[i]) == BitsOf(0.0f));  // denormals are zeros
      } else if (exact >= 0x1p128L) {
        CHECK(results[i] == INFINITY);
      } else {
        CHECK(std::abs(results[i] / exact - 1) <= 0x1p-22L);
      }
    }
  }
}

}  // namespace
}  // namespace specd::ptx
