// Conversions and moves in the PTX machine, against the host's casts.
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

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: whole numbers are cut, and extended by their type's sign") {
    CheckOpcode<int64_t, int32_t>("cvt.s64.s32", [](int32_t a) { return int64_t{a}; });
    CheckOpcode<uint64_t, uint32_t>("cvt.u64.u32", [](uint32_t a) { return uint64_t{a}; });
    CheckOpcode<uint32_t, uint64_t>("cvt.u32.u64",
                                    [](uint64_t a) { return a % (uint64_t{1} << 32); });
    CheckOpcode<uint16_t, uint32_t>("cvt.u16.u32", [](uint32_t a) { return a % 65536; });
    CheckOpcode<uint32_t, uint16_t>("cvt.u32.u16", [](uint16_t a) { return uint32_t{a}; });
    CheckOpcode<int32_t, int16_t>("cvt.s32.s16", [](int16_t a) { return int32_t{a}; });
    CheckOpcode<int32_t, uint32_t>("cvt.s32.s8", [](uint32_t a) {
      return static_cast<int32_t>(a % 256) - (a % 256 < 128 ? 0 : 256);
    });
    // A source register may be wider than the source's type.
    CheckOpcode<int64_t, uint64_t>("cvt.s64.s32", [](uint64_t a) {
      const auto low = static_cast<int64_t>(a % (uint64_t{1} << 32));
      return low < (int64_t{1} << 31) ? low : low - (int64_t{1} << 32);
    });
    CheckOpcode<uint64_t, uint64_t>("cvt.u64.u32",
                                    [](uint64_t a) { return a % (uint64_t{1} << 32); });
  }

  TEST_CASE("PTX machine: whole numbers become the nearest float, ties to even") {
    const auto nearest = [](auto a) {
      const __float128 exact = a;
      return static_cast<float>(exact);
    };
    CheckOpcode<float, int32_t>("cvt.rn.f32.s32", [&](int32_t a) { return nearest(a); });
    CheckOpcode<float, uint32_t>("cvt.rn.f32.u32", [&](uint32_t a) { return nearest(a); });
    CheckOpcode<float, uint64_t>("cvt.rn.f32.u64", [&](uint64_t a) { return nearest(a); });
    CheckOpcode<double, uint64_t>("cvt.rn.f64.u64", [](uint64_t a) {
      return static_cast<double>(static_cast<__float128>(a));
    });
    CheckOpcode<double, int64_t>("cvt.rn.f64.s64", [](int64_t a) {
      return static_cast<double>(static_cast<__float128>(a));
    });
  }

  TEST_CASE("PTX machine: floats become whole numbers towards zero, and stay within their range") {
    CheckOpcode<int32_t, float>("cvt.rzi.s32.f32",
                                [](float a) { return std::isnan(a) ? 0 : Saturated<int32_t>(a); });
    CheckOpcode<uint32_t, float>(
        "cvt.rzi.u32.f32", [](float a) { return std::isnan(a) ? 0u : Saturated<uint32_t>(a); });
    CheckOpcode<uint64_t, double>("cvt.rzi.u64.f64", [](double a) {
      return std::isnan(a) ? uint64_t{0} : Saturated<uint64_t>(a);
    });
  }

  TEST_CASE("PTX machine: floats of other widths") {
    CheckOpcode<double, float>("cvt.f64.f32", [](float a) { return static_cast<double>(a); });
    CheckOpcode<float, double>("cvt.rn.f32.f64", [](double a) {
      return std::isnan(a) ? std::bit_cast<float>(0x7FFFFFFFu) : static_cast<float>(a);
    });
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

  TEST_CASE("PTX machine: comparisons and selections of whole numbers go by the type's sign") {
    const auto check = [](const std::string& opcode, auto zero, auto holds) {
      using Value = decltype(zero);
      CheckOpcode<uint32_t, Value, Value>(
          ".reg .pred %c; setp." + opcode + " %c, %s0, %s1; selp.b32 %d, 7, 5, %c; //",
          [&](Value a, Value b) { return holds(a, b) ? 7u : 5u; });
    };
    check("lt.s32", int32_t{}, [](int64_t a, int64_t b) { return a < b; });
    check("lt.u32", uint32_t{}, [](int64_t a, int64_t b) { return a < b; });
    check("ge.s64", int64_t{}, [](__int128 a, __int128 b) { return a >= b; });
    check("gt.u64", uint64_t{}, [](__int128 a, __int128 b) { return a > b; });
    check("le.s16", int16_t{}, [](int a, int b) { return a <= b; });
    check("hi.u16", uint16_t{}, [](int a, int b) { return a > b; });
    check("eq.b64", uint64_t{}, [](uint64_t a, uint64_t b) { return (a ^ b) == 0; });
    check("ne.s16", int16_t{}, [](int a, int b) { return a - b != 0; });
  }

  TEST_CASE("PTX machine: halves of registers, packed and unpacked") {
    CheckOpcode<uint64_t, uint32_t, uint32_t>("mov.b64 %d, {%s0, %s1}; //",
                                              [](uint64_t a, uint64_t b) { return a + (b << 32); });
    CheckOpcode<uint32_t, uint16_t, uint16_t>("mov.b32 %d, {%s0, %s1}; //",
                                              [](uint32_t a, uint32_t b) { return a + (b << 16); });
    CheckOpcode<uint32_t, uint64_t>("mov.b64 {_, %d}, %s0; //", [](uint64_t a) { return a >> 32; });
    CheckOpcode<uint16_t, uint32_t>("mov.b32 {%d, _}, %s0; //",
                                    [](uint32_t a) { return a % 65536; });
  }
}

}  // namespace
}  // namespace specd::ptx
