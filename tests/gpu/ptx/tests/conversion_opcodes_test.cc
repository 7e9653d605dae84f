// Conversions in the PTX machine where C++ says less than PTX: floats beyond the ends of a whole
// type, and NaN. Every half is compared too. The answers of the suite "gpu" check the other
// conversions.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

template <typename To, typename From>
To Saturated(From value) {
  const __float128 exact = value;
  const __float128 lowest = std::numeric_limits<To>::min();
  const __float128 highest = std::numeric_limits<To>::max();
  return static_cast<To>(exact < lowest ? lowest : exact > highest ? highest : exact);
}

// The manual's results for NaN and for numbers beyond the ends of a type.
template <typename To>
struct Limits {
  To of_nan;
  To lowest;
  To highest;
};
template <typename To, typename From>
void CheckTruncation(const std::string& types, const Limits<To>& limits) {
  const std::string opcode = "cvt.rzi." + types;
  CheckOpcode<To, From>(opcode,
                        [&](From a) { return std::isnan(a) ? limits.of_nan : Saturated<To>(a); });
  const From end = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  const From infinity = std::numeric_limits<From>::infinity();
  const std::pair<From, To> cases[] = {
      {std::numeric_limits<From>::quiet_NaN(), limits.of_nan},
      {-std::numeric_limits<From>::quiet_NaN(), limits.of_nan},
      {infinity, limits.highest},
      {-infinity, limits.lowest},
      {end, limits.highest},
      {std::nextafter(end, infinity), limits.highest},
      {-end, limits.lowest},
      {std::nextafter(-end, -infinity), limits.lowest},
      {std::nextafter(end, From{0}), Saturated<To>(std::nextafter(end, From{0}))},
      {From(2.75), To{2}},
      {From(-0.75), To{0}}};
  std::vector<std::tuple<From>> rows;
  for (const auto& [value, wanted] : cases) rows.emplace_back(value);
  const auto results = RunRows<To, From>(opcode, std::span<const std::tuple<From>>(rows), {});
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(opcode);
    CAPTURE(cases[i].first);
    CHECK(results[i] == cases[i].second);
  }
}

TEST_SUITE("unit") {
  // NaN was 0 for each result but .s64. PTX ISA, "cvt": "Zero if source is not .f64 and destination
  // is not .s64, .u64", otherwise 1 << (BitWidth(dst) - 1).
  TEST_CASE("PTX machine: floats become whole numbers towards zero, and stay within their range") {
    constexpr int32_t kLowest32 = -0x7FFFFFFF - 1;
    constexpr int64_t kLowest64 = -0x7FFFFFFFFFFFFFFF - 1;
    const Limits<int32_t> s32 = {.of_nan = 0, .lowest = kLowest32, .highest = 0x7FFFFFFF};
    const Limits<uint32_t> u32 = {.of_nan = 0, .lowest = 0, .highest = 0xFFFFFFFF};
    const Limits<int64_t> s64 = {
        .of_nan = kLowest64, .lowest = kLowest64, .highest = 0x7FFFFFFFFFFFFFFF};
    const Limits<uint64_t> u64 = {
        .of_nan = 0x8000000000000000, .lowest = 0, .highest = 0xFFFFFFFFFFFFFFFF};
    CheckTruncation<int32_t, float>("s32.f32", s32);
    CheckTruncation<uint32_t, float>("u32.f32", u32);
    CheckTruncation<int64_t, float>("s64.f32", s64);
    CheckTruncation<uint64_t, float>("u64.f32", u64);
    CheckTruncation<int32_t, double>("s32.f64", {kLowest32, s32.lowest, s32.highest});
    CheckTruncation<uint32_t, double>("u32.f64", {0x80000000, u32.lowest, u32.highest});
    CheckTruncation<int64_t, double>("s64.f64", s64);
    CheckTruncation<uint64_t, double>("u64.f64", u64);
  }

  TEST_CASE("PTX machine: every half becomes its float") {
    std::vector<std::tuple<uint16_t>> rows;
    for (uint32_t i = 0; i < 65536; ++i) rows.emplace_back(static_cast<uint16_t>(i));
    const auto results =
        RunRows<float, uint16_t>("cvt.f32.f16", std::span<const std::tuple<uint16_t>>(rows), {});
    for (uint32_t i = 0; i < 65536; ++i) {
      const int exponent = static_cast<int>(i >> 10 & 31);
      const int fraction = static_cast<int>(i & 1023);
      const double sign = (i >> 15) != 0 ? -1 : 1;
      double wanted = std::ldexp(exponent == 0 ? fraction : 1024 + fraction,
                                 (exponent == 0 ? 1 : exponent) - 25);
      if (exponent == 31) wanted = INFINITY;
      CAPTURE(i);
      if (exponent == 31 && fraction != 0) {
        REQUIRE(BitsOf(results[i]) == 0x7FFFFFFFu);
      } else {
        REQUIRE(BitsOf(results[i]) == BitsOf(static_cast<float>(sign * wanted)));
      }
    }
  }
}

}  // namespace
}  // namespace specd::ptx
