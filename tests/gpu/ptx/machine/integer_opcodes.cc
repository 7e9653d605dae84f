// PTX ISA, "Integer Arithmetic Instructions".
#include <algorithm>

#include "tests/gpu/ptx/machine/lane_functions.h"

namespace specd::ptx {

namespace {

// Arithmetic is modulo 2^n, which C++ promises of unsigned numbers alone.
template <typename Value>
using Unsigned = std::make_unsigned_t<Value>;

template <typename Value>
void AddArithmetic(OpcodeTable* table, const std::string& type) {
  using U = Unsigned<Value>;
  const auto add = [&]<typename Function>(const std::string& name, Function function) {
    AddLanes<Value, Value, Value>(table, {(name + "." + type).c_str()}, function);
  };
  // "add": d = a + b. "sub": d = a - b. "mul.lo": the low half of the product.
  add("add", [](Value a, Value b) { return static_cast<Value>(U(a) + U(b)); });
  add("sub", [](Value a, Value b) { return static_cast<Value>(U(a) - U(b)); });
  add("mul.lo", [](Value a, Value b) { return static_cast<Value>(U(U(a) * uint64_t{U(b)})); });
  // "min", "max"
  add("min", [](Value a, Value b) { return std::min(a, b); });
  add("max", [](Value a, Value b) { return std::max(a, b); });
  // "div": truncates towards zero. The manual leaves division by zero open; devices give all ones.
  add("div", [](Value a, Value b) {
    if (b == 0) return static_cast<Value>(-1);
    // The quotient of the lowest number and -1 does not fit, and wraps around.
    if (std::is_signed_v<Value> && b == static_cast<Value>(-1)) return static_cast<Value>(-U(a));
    return static_cast<Value>(a / b);
  });
  // "rem": the sign is that of a; of zero, a.
  add("rem", [](Value a, Value b) {
    if (b == 0) return a;
    if (std::is_signed_v<Value> && b == static_cast<Value>(-1)) return Value{0};
    return static_cast<Value>(a % b);
  });
  // "mad.lo": d = a * b + c, the low half.
  AddLanes<Value, Value, Value, Value>(table, {("mad.lo." + type).c_str()},
                                       [](Value a, Value b, Value c) {
                                         return static_cast<Value>(U(U(a) * uint64_t{U(b)}) + U(c));
                                       });
}

// "mul.hi", "mad.hi": the high half of the product. "mul.wide", "mad.wide": all of it.
template <typename Value, typename Wide>
void AddWide(OpcodeTable* table, const std::string& type) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(Value));
  AddLanes<Value, Value, Value>(table, {("mul.hi." + type).c_str()}, [](Value a, Value b) {
    return static_cast<Value>(static_cast<Wide>(a) * static_cast<Wide>(b) >> kBits);
  });
  AddLanes<Value, Value, Value, Value>(
      table, {("mad.hi." + type).c_str()}, [](Value a, Value b, Value c) {
        using U = Unsigned<Value>;
        const auto high = static_cast<U>(static_cast<Wide>(a) * static_cast<Wide>(b) >> kBits);
        return static_cast<Value>(high + U(c));
      });
  if constexpr (sizeof(Wide) <= 8) {
    AddLanes<Wide, Value, Value>(table, {("mul.wide." + type).c_str()}, [](Value a, Value b) {
      return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
    });
    AddLanes<Wide, Value, Value, Wide>(
        table, {("mad.wide." + type).c_str()}, [](Value a, Value b, Wide c) {
          using U = Unsigned<Wide>;
          return static_cast<Wide>(U(static_cast<Wide>(a) * static_cast<Wide>(b)) + U(c));
        });
  }
}

template <typename Value>
void AddSigned(OpcodeTable* table, const std::string& type) {
  using U = Unsigned<Value>;
  // "neg": d = -a. "abs": the lowest number stays what it is.
  AddLanes<Value, Value>(table, {("neg." + type).c_str()},
                         [](Value a) { return static_cast<Value>(-U(a)); });
  AddLanes<Value, Value>(table, {("abs." + type).c_str()},
                         [](Value a) { return static_cast<Value>(a < 0 ? -U(a) : U(a)); });
}

void AddCounts(OpcodeTable* table) {
  // "popc": the number of set bits. "clz": of zeros above the highest set bit.
  AddLanes<uint32_t, uint32_t>(table, {"popc.b32"},
                               [](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  AddLanes<uint32_t, uint64_t>(table, {"popc.b64"},
                               [](uint64_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  AddLanes<uint32_t, uint32_t>(
      table, {"clz.b32"}, [](uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); });
  AddLanes<uint32_t, uint64_t>(
      table, {"clz.b64"}, [](uint64_t a) { return static_cast<uint32_t>(std::countl_zero(a)); });
  // "bfind": the place of the highest set bit, or all ones. With .shiftamt: how far a shift to the
  // left brings it to the top.
  AddLanes<uint32_t, uint32_t>(table, {"bfind.u32"}, [](uint32_t a) {
    return a == 0 ? ~0u : static_cast<uint32_t>(31 - std::countl_zero(a));
  });
  AddLanes<uint32_t, uint32_t>(table, {"bfind.shiftamt.u32"}, [](uint32_t a) {
    return a == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(a));
  });
  AddLanes<uint32_t, uint64_t>(table, {"bfind.u64"}, [](uint64_t a) {
    return a == 0 ? ~0u : static_cast<uint32_t>(63 - std::countl_zero(a));
  });
  AddLanes<uint32_t, uint64_t>(table, {"bfind.shiftamt.u64"}, [](uint64_t a) {
    return a == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(a));
  });
}

}  // namespace

void AddIntegerOpcodes(OpcodeTable* table) {
  AddArithmetic<int16_t>(table, "s16");
  AddArithmetic<uint16_t>(table, "u16");
  AddArithmetic<int32_t>(table, "s32");
  AddArithmetic<uint32_t>(table, "u32");
  AddArithmetic<int64_t>(table, "s64");
  AddArithmetic<uint64_t>(table, "u64");
  AddWide<int16_t, int32_t>(table, "s16");
  AddWide<uint16_t, uint32_t>(table, "u16");
  AddWide<int32_t, int64_t>(table, "s32");
  AddWide<uint32_t, uint64_t>(table, "u32");
  AddWide<int64_t, __int128>(table, "s64");
  AddWide<uint64_t, unsigned __int128>(table, "u64");
  AddSigned<int16_t>(table, "s16");
  AddSigned<int32_t>(table, "s32");
  AddSigned<int64_t>(table, "s64");
  AddCounts(table);
}

}  // namespace specd::ptx
