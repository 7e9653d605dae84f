// PTX ISA, "Extended-Precision Integer Arithmetic Instructions".
//
// The flag CC.CF of a lane is what `.cc` writes and `addc`, `subc` and `madc` read. A difference is
// a + ~b + 1, and its flag the carry of that: 1 if nothing was borrowed. The manual calls the flag
// a borrow, but nvcc's own division of 128 bits reads it with addc behind subc.
#include "tests/gpu/ptx/machine/lane_functions.h"

namespace specd::ptx {

namespace {

using Wide = unsigned __int128;

// Function(a, b, c, carry) gives a sum with the carry above its bits; a, b and c are unsigned.
template <typename Value, typename Function, bool kWritesFlag>
void RunCarry(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(Value));
  const auto source = [&](int i) {
    return instruction.sources[i] == kNoOperand ? nullptr
                                                : frame.Source<Value>(instruction.sources[i]);
  };
  const Value* const a = source(0);
  const Value* const b = source(1);
  const Value* const c = source(2);
  Value* const result = frame.At<Value>(instruction.result);
  ForEachLane(lanes, [&](uint32_t lane) {
    const Wide sum = Function{}(a[lane], b[lane], c == nullptr ? Value{0} : c[lane],
                                static_cast<Value>(frame.carry >> lane & 1));
    result[lane] = static_cast<Value>(sum);
    if (kWritesFlag) {
      frame.carry &= ~(1u << lane);
      frame.carry |= static_cast<uint32_t>(sum >> kBits & 1) << lane;
    }
  });
}

template <typename Value, typename Function>
void AddCarry(OpcodeTable* table, const std::string& name, const std::string& ending,
              size_t num_sources) {
  const std::vector<int> sources(num_sources, static_cast<int>(sizeof(Value)));
  const int result = static_cast<int>(sizeof(Value));
  (*table)[name + ".cc." + ending] = {&RunCarry<Value, Function, true>, result, sources};
  // add, sub and mad without .cc and without a carry are plain arithmetic.
  if (name.find('c') != std::string::npos) {
    (*table)[name + "." + ending] = {&RunCarry<Value, Function, false>, result, sources};
  }
}

// "add", "addc", "sub", "subc", "mad" and "madc", with .cc
template <typename Value>
struct Sum {
  Wide operator()(Value a, Value b, Value, Value) const { return Wide{a} + b; }
};
template <typename Value>
struct SumWithCarry {
  Wide operator()(Value a, Value b, Value, Value carry) const { return Wide{a} + b + carry; }
};
template <typename Value>
struct Difference {
  Wide operator()(Value a, Value b, Value, Value) const { return Wide{a} + Value(~b) + 1; }
};
template <typename Value>
struct DifferenceWithCarry {
  Wide operator()(Value a, Value b, Value, Value carry) const {
    return Wide{a} + Value(~b) + carry;
  }
};
template <typename Value, bool kHigh, bool kWithCarry>
struct ProductAndSum {
  Wide operator()(Value a, Value b, Value c, Value carry) const {
    const Wide product = Wide{a} * b;
    const auto half = static_cast<Value>(kHigh ? product >> (8 * sizeof(Value)) : product);
    return Wide{half} + c + (kWithCarry ? carry : Value{0});
  }
};

template <typename Value>
void AddOfType(OpcodeTable* table, const std::string& type) {
  AddCarry<Value, Sum<Value>>(table, "add", type, 2);
  AddCarry<Value, SumWithCarry<Value>>(table, "addc", type, 2);
  AddCarry<Value, Difference<Value>>(table, "sub", type, 2);
  AddCarry<Value, DifferenceWithCarry<Value>>(table, "subc", type, 2);
  AddCarry<Value, ProductAndSum<Value, false, false>>(table, "mad.lo", type, 3);
  AddCarry<Value, ProductAndSum<Value, true, false>>(table, "mad.hi", type, 3);
  AddCarry<Value, ProductAndSum<Value, false, true>>(table, "madc.lo", type, 3);
  AddCarry<Value, ProductAndSum<Value, true, true>>(table, "madc.hi", type, 3);
}

}  // namespace

void AddCarryOpcodes(OpcodeTable* table) {
  // The sign of the operands changes no bit of add and sub, nor of mad.lo. mad.hi of signed numbers
  // would be another, and is not there.
  AddOfType<uint32_t>(table, "u32");
  AddOfType<uint64_t>(table, "u64");
  for (const char* const name : {"add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc"}) {
    for (const auto& [type, same] : {std::pair("s32", "u32"), std::pair("s64", "u64")}) {
      (*table)[std::string(name) + "." + type] = table->at(std::string(name) + "." + same);
    }
  }
}

}  // namespace specd::ptx
