// AddLanes makes handlers of functions of one lane, for the tables of opcodes.
//
// A register of up to 32 bits has a slot of 4 bytes in each lane, one of 64 bits a slot of 8. A
// function computes all 32 lanes, so that the compiler can use vectors; lanes that do not take part
// keep what they had. A function must therefore bear any operand.
//
//   AddLanes<uint32_t, uint32_t, uint32_t>(table, {"add.u32"},
//                                          [](uint32_t a, uint32_t b) { return a + b; });
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/opcodes.h"

namespace specd::ptx {

template <typename Value>
using SlotOf = std::conditional_t<sizeof(Value) == 8, uint64_t, uint32_t>;

template <typename Value>
Value FromSlot(SlotOf<Value> bits) {
  if constexpr (sizeof(Value) == sizeof(bits)) {
    return std::bit_cast<Value>(bits);
  } else {
    return static_cast<Value>(bits);  // the low bits
  }
}
// Values of less than 32 bits leave zeros above them.
template <typename Value>
SlotOf<Value> ToSlot(Value value) {
  if constexpr (sizeof(Value) == sizeof(SlotOf<Value>)) {
    return std::bit_cast<SlotOf<Value>>(value);
  } else {
    return static_cast<std::make_unsigned_t<Value>>(value);
  }
}

// Writes the lanes that take part.
template <typename Slot>
void WriteLanes(Frame& frame, int32_t result, const Slot* values, uint32_t lanes) {
  Slot* const to = frame.At<Slot>(result);
  if (lanes == kAllLanes) {
    std::memcpy(to, values, kLanes * sizeof(Slot));
    return;
  }
  for (int i = 0; i < kLanes; ++i) to[i] = (lanes >> i & 1) != 0 ? values[i] : to[i];
}

template <typename Function, typename Result, typename... Sources>
struct LaneHandler {
  static void Run(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
    Apply(frame, instruction, lanes, std::index_sequence_for<Sources...>());
  }

  template <size_t... kIndex>
  static void Apply(Frame& frame, const Instruction& instruction, uint32_t lanes,
                    std::index_sequence<kIndex...>) {
    const std::tuple<const SlotOf<Sources>*...> sources{
        frame.Source<SlotOf<Sources>>(instruction.sources[kIndex])...};
    const auto compute = [&](SlotOf<Result>* to) {
// The result may take the place of a source. No other register overlaps it (register_slots.h).
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i) {
        to[i] = ToSlot<Result>(Function{}(FromSlot<Sources>(std::get<kIndex>(sources)[i])...));
      }
    };
    if (lanes == kAllLanes) return compute(frame.At<SlotOf<Result>>(instruction.result));
    SlotOf<Result> values[kLanes];
    compute(values);
    WriteLanes(frame, instruction.result, values, lanes);
  }
};

template <typename Result, typename... Sources, typename Function>
void AddLanes(OpcodeTable* table, std::initializer_list<const char*> names, Function) {
  for (const char* const name : names) {
    (*table)[name] = {&LaneHandler<Function, Result, Sources...>::Run,
                      static_cast<int>(sizeof(Result)),
                      {static_cast<int>(sizeof(Sources))...}};
  }
}

// A comparison of two lanes' values: the result is a predicate.
template <typename Value, typename Function>
struct ComparisonHandler {
  static void Run(Warp&, Frame& frame, const Instruction& instruction, uint32_t lanes) {
    const auto* const a = frame.Source<SlotOf<Value>>(instruction.sources[0]);
    const auto* const b = frame.Source<SlotOf<Value>>(instruction.sources[1]);
    uint8_t holds[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      holds[i] = Function{}(FromSlot<Value>(a[i]), FromSlot<Value>(b[i])) ? 1 : 0;
    }
    // The factor brings byte i, which is 0 or 1, to bit 56 + i.
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; i += 8) {
      uint64_t bytes;
      std::memcpy(&bytes, holds + i, sizeof(bytes));
      bits |= static_cast<uint32_t>(bytes * 0x0102040810204080u >> 56) << i;
    }
    frame.SetPredicate(instruction.result, lanes, bits);
  }
};
template <typename Value, typename Function>
void AddComparison(OpcodeTable* table, const std::string& name, Function) {
  constexpr int kBytes = static_cast<int>(sizeof(Value));
  (*table)[name] = {&ComparisonHandler<Value, Function>::Run, kPredicateBytes, {kBytes, kBytes}};
}

}  // namespace specd::ptx
