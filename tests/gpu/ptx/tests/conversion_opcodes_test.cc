// Conversions and moves in the PTX machine, against the host's casts.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// The number of the type that differs by a multiple of 2^n.
template <typename Value>
Value Congruent(__int128 value) {
  const __int128 modulus = __int128{1} << (8 * sizeof(Value));
  const __int128 rest = (value % modulus + modulus) % modulus;
  return static_cast<Value>(rest > std::numeric_limits<Value>::max() ? rest - modulus : rest);
}

// From a type in registers as wide as it or wider, to every type.
template <typename From>
void CheckWholeConversions(const std::string& from) {
  const auto check = [&]<typename To, typename Register>(const char* to, To, Register) {
    if constexpr (sizeof(Register) >= sizeof(From)) {
      CheckOpcode<To, Register>(fmt::format("cvt.{}.{}", to, from),
                                [](Register a) { return Congruent<To>(Congruent<From>(a)); });
    }
  };
  const auto check_to = [&](const char* to, auto value) {
    check(to, value, uint16_t{});
    check(to, value, uint32_t{});
    check(to, value, uint64_t{});
  };
  check_to("s16", int16_t{});
  check_to("u16", uint16_t{});
  check_to("s32", int32_t{});
  check_to("u32", uint32_t{});
  check_to("s64", int64_t{});
  check_to("u64", uint64_t{});
}

template <typename From>
void CheckNearest(const std::string& from) {
  CheckOpcode<float, From>("cvt.rn.f32." + from,
                           [](From a) { return static_cast<float>(static_cast<__float128>(a)); });
  CheckOpcode<double, From>("cvt.rn.f64." + from,
                            [](From a) { return static_cast<double>(static_cast<__float128>(a)); });
}

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

// The comparisons that a type has, against the sign of an exact difference.
template <typename Value>
void CheckWholeComparisons(const std::string& type) {
  const auto check = [&](const char* name, auto holds) {
    CheckOpcode<uint32_t, Value, Value>(
        fmt::format(".reg .pred %c; setp.{}.{} %c, %s0, %s1; selp.b32 %d, 7, 5, %c; //", name,
                    type),
        [&](Value a, Value b) { return holds(static_cast<__int128>(a) - b) ? 7u : 5u; });
  };
  check("eq", [](__int128 difference) { return difference == 0; });
  check("ne", [](__int128 difference) { return difference != 0; });
  if (type[0] == 'b') return;
  check("lt", [](__int128 difference) { return difference < 0; });
  check("le", [](__int128 difference) { return difference <= 0; });
  check("gt", [](__int128 difference) { return difference > 0; });
  check("ge", [](__int128 difference) { return difference >= 0; });
  if (type[0] != 'u') return;
  check("lo", [](__int128 difference) { return difference < 0; });
  check("ls", [](__int128 difference) { return difference <= 0; });
  check("hi", [](__int128 difference) { return difference > 0; });
  check("hs", [](__int128 difference) { return difference >= 0; });
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: whole numbers are cut, and extended by their type's sign") {
    CheckWholeConversions<int8_t>("s8");
    CheckWholeConversions<uint8_t>("u8");
    CheckWholeConversions<int16_t>("s16");
    CheckWholeConversions<uint16_t>("u16");
    CheckWholeConversions<int32_t>("s32");
    CheckWholeConversions<uint32_t>("u32");
    CheckWholeConversions<int64_t>("s64");
    CheckWholeConversions<uint64_t>("u64");
  }

  TEST_CASE("PTX machine: whole numbers become the nearest float, ties to even") {
    CheckNearest<int32_t>("s32");
    CheckNearest<uint32_t>("u32");
    CheckNearest<int64_t>("s64");
    CheckNearest<uint64_t>("u64");
  }

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
    CheckWholeComparisons<uint16_t>("b16");
    CheckWholeComparisons<int16_t>("s16");
    CheckWholeComparisons<uint16_t>("u16");
    CheckWholeComparisons<uint32_t>("b32");
    CheckWholeComparisons<int32_t>("s32");
    CheckWholeComparisons<uint32_t>("u32");
    CheckWholeComparisons<uint64_t>("b64");
    CheckWholeComparisons<int64_t>("s64");
    CheckWholeComparisons<uint64_t>("u64");
  }

  TEST_CASE("PTX machine: a selection takes the first operand where its predicate holds") {
    const auto check = []<typename Value>(Value, std::initializer_list<const char*> types) {
      for (const char* const type : types) {
        CheckOpcode<Value, Value, Value, uint32_t>(
            fmt::format(".reg .pred %c; setp.ne.u32 %c, %s2, 0; selp.{} %d, %s0, %s1, %c; //",
                        type),
            [](Value a, Value b, uint32_t c) { return c != 0 ? a : b; });
      }
    };
    check(uint16_t{}, {"b16", "u16", "s16"});
    check(uint32_t{}, {"b32", "u32", "s32", "f32"});
    check(uint64_t{}, {"b64", "u64", "s64", "f64"});
  }

  TEST_CASE("PTX machine: predicates are combined, inverted and copied") {
    const auto check = [](const std::string& statement, auto expected) {
      CheckOpcode<uint32_t, uint32_t, uint32_t>(
          ".reg .pred %x, %y; setp.gt.u32 %x, %s0, 31; setp.eq.u32 %y, %s1, 7;\n" + statement +
              " selp.b32 %d, 1, 0, %x; //",
          [&](uint32_t a, uint32_t b) { return expected(a > 31, b == 7) ? 1u : 0u; });
    };
    check("and.pred %x, %x, %y;", [](bool a, bool b) { return a ? b : false; });
    check("or.pred %x, %x, %y;", [](bool a, bool b) { return a ? true : b; });
    check("xor.pred %x, %x, %y;", [](bool a, bool b) { return a != b; });
    check("not.pred %x, %y;", [](bool, bool b) { return !b; });
    check("mov.pred %x, %y;", [](bool, bool b) { return b; });
    // A lane whose guard does not hold keeps its predicate.
    check("@%y not.pred %x, %x;", [](bool a, bool b) { return b ? !a : a; });
  }

  TEST_CASE("PTX machine: moves keep every bit") {
    const auto check = []<typename Value>(Value, std::initializer_list<const char*> types) {
      for (const char* const type : types) {
        CheckOpcode<Value, Value>(fmt::format("mov.{}", type), [](Value a) { return a; });
      }
    };
    check(uint16_t{}, {"b16", "u16", "s16"});
    check(uint32_t{}, {"b32", "u32", "s32", "f32"});
    check(uint64_t{}, {"b64", "u64", "s64", "f64"});
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
