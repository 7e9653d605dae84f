// OpClassOf sorts instructions by the unit of a processor that runs them, for the counts of a
// profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace specd::ptx {

enum class OpClass : uint8_t {
  kFloat,         // add, mul, fma of f32
  kAlu,           // integers of 32 bits, logic, shifts, comparisons, selections, min and max
  kWideAlu,       // the same of 64 bits, which takes two instructions
  kMultiply,      // products of integers of 32 bits
  kWideMultiply,  // of 64 bits
  kDivide,        // quotients that ptxas makes a sequence of
  kDouble,        // of f64
  kSpecial,       // rcp, ex2, lg2, sqrt by approximation
  kConvert,       // between integers and floats, or floats of two widths
  kBitCount,      // popc, clz, bfind, brev
  kMove,          // of registers, special registers and params, which may vanish
  kControl,       // bra, call, ret
  kExchange,      // shfl, vote, redux
  kSync,          // barriers and fences
  kMemory,        // ld and st of global memory, or by generic addresses
  kShared,
  kLocal,
  kAtomic,
};
inline constexpr size_t kNumOpClasses = 18;

std::string_view NameOf(OpClass op_class);
OpClass OpClassOf(std::string_view opcode);

}  // namespace specd::ptx
