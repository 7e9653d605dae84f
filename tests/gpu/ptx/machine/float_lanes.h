// Canonical and FlushDenormal round off results of floating-point lanes, as PTX says.
//
// Pure functions, for the tables of opcodes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace specd::ptx {

template <typename Value>
bool IsNan(Value a) {
  return a != a;
}

// PTX ISA, "Floating-Point Instructions": a NaN of 32 bits is canonical; one of 64 bits keeps its
// payload.
inline float Canonical(float a) { return IsNan(a) ? std::bit_cast<float>(0x7FFFFFFFu) : a; }
inline double Canonical(double a) { return a; }
// The result of an operation whose operands a compiler may exchange. If both operands are NaNs of
// 64 bits, the first one is the result.
inline float CanonicalOf(float, float result) { return Canonical(result); }
inline double CanonicalOf(double a, double result) { return IsNan(a) ? a : result; }

// .ftz: a denormal becomes a zero of its sign.
inline float FlushDenormal(float a) {
  return std::abs(a) < std::numeric_limits<float>::min() ? std::copysign(0.0f, a) : a;
}

}  // namespace specd::ptx
