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
