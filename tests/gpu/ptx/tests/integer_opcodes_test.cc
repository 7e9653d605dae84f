// Whole numbers in the PTX machine, where a kernel's source says less than PTX: quotients by zero,
// shifts past the width, and carries. The other instructions on whole numbers are checked by the
// answers of the suite "gpu". Expected values are the host's, of wider numbers and bit by bit.
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

// A number whose bit i is function(i).
template <typename Value, typename Function>
Value FromBits(const Function& function) {
  std::make_unsigned_t<Value> value = 0;
  for (size_t i = 0; i < 8 * sizeof(Value); ++i) {
    if (function(i)) value = static_cast<decltype(value)>(value | uint64_t{1} << i);
  }
  return static_cast<Value>(value);
}
template <typename Value>
bool Bit(Value value, size_t i) {
  return i < 8 * sizeof(Value) && (static_cast<std::make_unsigned_t<Value>>(value) >> i & 1) != 0;
}

template <typename Value>
void CheckShifts(const std::string& bits) {
  using Signed = std::make_signed_t<Value>;
  constexpr size_t kBits = 8 * sizeof(Value);
  CheckOpcode<Value, Value, uint32_t>("shl.b" + bits, [](Value a, uint32_t by) {
    return FromBits<Value>([&](size_t i) { return i >= by && Bit(a, i - by); });
  });
  for (const char* const name : {"shr.u", "shr.b"}) {
    CheckOpcode<Value, Value, uint32_t>(name + bits, [](Value a, uint32_t by) {
      return FromBits<Value>([&](size_t i) { return Bit(a, i + by); });
    });
  }
  CheckOpcode<Signed, Signed, uint32_t>("shr.s" + bits, [](Signed a, uint32_t by) {
    return FromBits<Signed>([&](size_t i) { return Bit(a, std::min(i + by, kBits - 1)); });
  });
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

  TEST_CASE("PTX machine: shifts by any amount, past the width too") {
    CheckShifts<uint16_t>("16");
    CheckShifts<uint32_t>("32");
    CheckShifts<uint64_t>("64");
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
}

}  // namespace
}  // namespace specd::ptx
