// Whole numbers in the PTX machine, against the host's arithmetic of wider numbers.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

using Wide = __int128;

// The low bits of a value that no operation has rounded or cut.
template <typename Value>
Value Low(Wide value) {
  return static_cast<Value>(static_cast<unsigned __int128>(value));
}

template <typename Value>
void CheckArithmetic(const std::string& type) {
  CheckOpcode<Value, Value, Value>("add." + type,
                                   [](Value a, Value b) { return Low<Value>(Wide{a} + Wide{b}); });
  CheckOpcode<Value, Value, Value>("sub." + type,
                                   [](Value a, Value b) { return Low<Value>(Wide{a} - Wide{b}); });
  CheckOpcode<Value, Value, Value>("min." + type, [](Value a, Value b) { return b < a ? b : a; });
  CheckOpcode<Value, Value, Value>("max." + type, [](Value a, Value b) { return b > a ? b : a; });
  CheckOpcode<Value, Value, Value>("div." + type, [](Value a, Value b) {
    return b == 0 ? Low<Value>(-1) : Low<Value>(Wide{a} / Wide{b});
  });
  CheckOpcode<Value, Value, Value>(
      "rem." + type, [](Value a, Value b) { return b == 0 ? a : Low<Value>(Wide{a} % Wide{b}); });
}

// Products as sums of shifted numbers, of 256 bits in two halves.
template <typename Value>
Value HighOfProduct(Value a, Value b) {
  constexpr int kBits = 8 * sizeof(Value);
  using U = std::make_unsigned_t<Value>;
  unsigned __int128 high = 0;
  unsigned __int128 low = 0;
  for (int i = 0; i < kBits; ++i) {
    if ((U(b) >> i & 1) == 0) continue;
    low += static_cast<unsigned __int128>(U(a)) << i;
  }
  high = low >> kBits;
  auto result = static_cast<U>(high);
  // The high half of a signed product, from that of the unsigned one.
  if (std::is_signed_v<Value> && a < 0) result = static_cast<U>(result - U(b));
  if (std::is_signed_v<Value> && b < 0) result = static_cast<U>(result - U(a));
  return static_cast<Value>(result);
}

template <typename Value>
void CheckProducts(const std::string& type) {
  using U = std::make_unsigned_t<Value>;
  const auto low = [](Value a, Value b) {
    U sum = 0;
    for (size_t i = 0; i < 8 * sizeof(U); ++i) {
      if ((U(b) >> i & 1) != 0) sum = static_cast<U>(sum + static_cast<U>(U(a) << i));
    }
    return sum;
  };
  CheckOpcode<Value, Value, Value>("mul.lo." + type,
                                   [&](Value a, Value b) { return static_cast<Value>(low(a, b)); });
  CheckOpcode<Value, Value, Value>("mul.hi." + type,
                                   [](Value a, Value b) { return HighOfProduct(a, b); });
  CheckOpcode<Value, Value, Value, Value>("mad.lo." + type, [&](Value a, Value b, Value c) {
    return static_cast<Value>(static_cast<U>(low(a, b) + U(c)));
  });
  CheckOpcode<Value, Value, Value, Value>("mad.hi." + type, [](Value a, Value b, Value c) {
    return Low<Value>(Wide{HighOfProduct(a, b)} + c);
  });
}

template <typename Value, typename Product>
void CheckWideProducts(const std::string& type) {
  CheckOpcode<Product, Value, Value>("mul.wide." + type,
                                     [](Value a, Value b) { return Low<Product>(Wide{a} * b); });
  CheckOpcode<Product, Value, Value, Product>("mad.wide." + type, [](Value a, Value b, Product c) {
    return Low<Product>(Wide{a} * b + c);
  });
}

// Three additions, of which the last takes the flag and leaves none.
void CheckSumsOfTwoWords() {
  const std::string body =
      ".reg .b64 %a, %b, %o, %v; .reg .b32 %l, %h, %m, %n, %c, %t; .reg .b64 %p;\n"
      "ld.param.u64 %p, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 24; add.s64 %p, %p, %o;\n"
      "ld.global.u32 %l, [%p]; ld.global.u32 %h, [%p+4];\n"
      "ld.global.u32 %m, [%p+8]; ld.global.u32 %n, [%p+12];\n"
      "add.cc.u32 %c, %l, %m; addc.u32 %t, %h, %n;\n"
      "mov.b64 %v, {%c, %t}; st.global.b64 [%p+16], %v;\n"
      "sub.cc.u32 %c, %l, %m; subc.u32 %t, %h, %n;\n"
      "mov.b64 %v, {%c, %t}; st.global.b64 [%p], %v;\n";
  const std::vector<uint64_t> values = EdgeValues<uint64_t>();
  for (const uint64_t b : values) {
    DeviceBlock block(values.size() * 24);
    auto* const memory = reinterpret_cast<uint64_t*>(block.begin());
    for (size_t i = 0; i < values.size(); ++i) {
      memory[3 * i] = values[i];
      memory[3 * i + 1] = b;
    }
    const absl::Status status =
        RunText(EntryText(1, body), {.block = static_cast<uint32_t>(values.size())},
                {reinterpret_cast<uint64_t>(memory)});
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK(memory[3 * i + 2] == values[i] + b);
      CHECK(memory[3 * i] == values[i] - b);
    }
  }
}

// The result of an instruction that follows one with the carry 0 or 1, and the flag that it leaves.
// `sum` gives the exact sum; the flag is 1 if it is beyond the type, or not below 0 if it is a
// difference. An instruction without .cc leaves the flag as it was.
template <typename Value, typename... Sources, typename SumFunction>
void CheckCarry(const std::string& opcode, bool is_difference, const SumFunction& sum) {
  constexpr int kBits = 8 * sizeof(Value);
  std::string operands;
  for (size_t i = 0; i < sizeof...(Sources); ++i) operands += fmt::format(", %s{}", i);
  for (const int carry : {0, 1}) {
    CAPTURE(carry);
    const std::string begin = fmt::format(".reg .b32 %x; .reg .b{} %y; add.cc.u32 %x, {}, 1;\n{} ",
                                          kBits, -carry, opcode);
    CheckOpcode<Value, Sources...>(begin + "%d" + operands + "; //", [&](Sources... sources) {
      return static_cast<Value>(sum(sources..., carry));
    });
    CheckOpcode<uint32_t, Sources...>(begin + "%y" + operands + "; addc.u32 %d, 0, 0; //",
                                      [&](Sources... sources) -> uint32_t {
                                        if (opcode.find(".cc") == std::string::npos)
                                          return static_cast<uint32_t>(carry);
                                        const Wide exact = sum(sources..., carry);
                                        return is_difference ? exact >= 0 : exact >> kBits != 0;
                                      });
  }
}

template <typename Value>
void CheckCarriesOfType(const std::string& type) {
  const auto check = [&](const std::string& name, bool is_difference, auto sum) {
    CheckCarry<Value, Value, Value>(name + "." + type, is_difference, sum);
  };
  check("add.cc", false, [](Wide a, Wide b, int) { return a + b; });
  check("addc.cc", false, [](Wide a, Wide b, int carry) { return a + b + carry; });
  check("addc", false, [](Wide a, Wide b, int carry) { return a + b + carry; });
  check("sub.cc", true, [](Wide a, Wide b, int) { return a - b; });
  check("subc.cc", true, [](Wide a, Wide b, int carry) { return a - b - 1 + carry; });
  check("subc", true, [](Wide a, Wide b, int carry) { return a - b - 1 + carry; });
}

template <typename Value>
void CheckCarriesOfProducts(const std::string& type) {
  const auto low = [](Value a, Value b) { return Wide{static_cast<Value>(a * b)}; };
  const auto high = [](Value a, Value b) { return Wide{HighOfProduct(a, b)}; };
  const auto check = [&](const std::string& name, auto half, bool takes_carry) {
    CheckCarry<Value, Value, Value, Value>(
        name + "." + type, false, [&](Value a, Value b, Value c, int carry) {
          return half(a, b) + Wide{c} + (takes_carry ? carry : 0);
        });
  };
  check("mad.lo.cc", low, false);
  check("mad.hi.cc", high, false);
  check("madc.lo.cc", low, true);
  check("madc.hi.cc", high, true);
  check("madc.lo", low, true);
  check("madc.hi", high, true);
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: sums, quotients and extremes of whole numbers") {
    CheckArithmetic<int16_t>("s16");
    CheckArithmetic<uint16_t>("u16");
    CheckArithmetic<int32_t>("s32");
    CheckArithmetic<uint32_t>("u32");
    CheckArithmetic<int64_t>("s64");
    CheckArithmetic<uint64_t>("u64");
  }

  TEST_CASE("PTX machine: products of whole numbers, low, high and wide") {
    CheckProducts<int16_t>("s16");
    CheckProducts<uint16_t>("u16");
    CheckProducts<int32_t>("s32");
    CheckProducts<uint32_t>("u32");
    CheckProducts<int64_t>("s64");
    CheckProducts<uint64_t>("u64");
    CheckWideProducts<int16_t, int32_t>("s16");
    CheckWideProducts<uint16_t, uint32_t>("u16");
    CheckWideProducts<int32_t, int64_t>("s32");
    CheckWideProducts<uint32_t, uint64_t>("u32");
  }

  TEST_CASE("PTX machine: the flag of a carry is written by .cc, and lives in each lane") {
    CheckSumsOfTwoWords();
  }

  TEST_CASE("PTX machine: sums and differences with a carry, and the flags that they leave") {
    CheckCarriesOfType<uint32_t>("u32");
    CheckCarriesOfType<uint32_t>("s32");
    CheckCarriesOfType<uint64_t>("u64");
    CheckCarriesOfType<uint64_t>("s64");
  }

  TEST_CASE("PTX machine: products with a sum and a carry, and the flags that they leave") {
    CheckCarriesOfProducts<uint32_t>("u32");
    CheckCarriesOfProducts<uint64_t>("u64");
  }

  TEST_CASE(
      "PTX machine: a subtraction leaves the carry of a + ~b + 1, as nvcc's divisions use it") {
    // addc adds 1 where the subtraction before it borrowed nothing.
    const std::string body =
        ".reg .b32 %a, %b, %c; .reg .b64 %p; ld.param.u64 %p, [p0];\n"
        "ld.global.u32 %a, [%p]; ld.global.u32 %b, [%p+4];\n"
        "sub.cc.u32 %c, %a, %b; addc.u32 %c, 0, 0; st.global.u32 [%p+8], %c;\n"
        "sub.cc.u32 %c, %b, %a; addc.u32 %c, 0, 0; st.global.u32 [%p+12], %c;\n";
    DeviceBlock block(16);
    auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    words[0] = 5;
    words[1] = 3;
    REQUIRE(RunText(EntryText(1, body), {.block = 1}, {reinterpret_cast<uint64_t>(words)}).ok());
    CHECK(words[2] == 1);
    CHECK(words[3] == 0);
  }

  TEST_CASE("PTX machine: negation, absolute values and counts of bits") {
    const auto check_signs = []<typename Value>(const std::string& type, Value) {
      CheckOpcode<Value, Value>("neg." + type, [](Value a) { return Low<Value>(-Wide{a}); });
      CheckOpcode<Value, Value>("abs." + type,
                                [](Value a) { return Low<Value>(a < 0 ? -Wide{a} : Wide{a}); });
    };
    check_signs("s16", int16_t{});
    check_signs("s32", int32_t{});
    check_signs("s64", int64_t{});
    const auto leading = [](uint64_t a, int bits) {
      int n = 0;
      while (n < bits && (a >> (bits - 1 - n) & 1) == 0) ++n;
      return static_cast<uint32_t>(n);
    };
    CheckOpcode<uint32_t, uint32_t>("clz.b32", [&](uint32_t a) { return leading(a, 32); });
    CheckOpcode<uint32_t, uint64_t>("clz.b64", [&](uint64_t a) { return leading(a, 64); });
    CheckOpcode<uint32_t, uint32_t>("bfind.u32", [&](uint32_t a) { return 31 - leading(a, 32); });
    CheckOpcode<uint32_t, uint32_t>("bfind.shiftamt.u32",
                                    [&](uint32_t a) { return a == 0 ? ~0u : leading(a, 32); });
    CheckOpcode<uint32_t, uint64_t>("bfind.u64", [&](uint64_t a) { return 63 - leading(a, 64); });
    CheckOpcode<uint32_t, uint64_t>("bfind.shiftamt.u64",
                                    [&](uint64_t a) { return a == 0 ? ~0u : leading(a, 64); });
    const auto count = [](uint64_t a) {
      uint32_t n = 0;
      for (; a != 0; a >>= 1) n += static_cast<uint32_t>(a & 1);
      return n;
    };
    CheckOpcode<uint32_t, uint32_t>("popc.b32", count);
    CheckOpcode<uint32_t, uint64_t>("popc.b64", count);
  }
}

}  // namespace
}  // namespace specd::ptx
