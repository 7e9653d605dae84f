// HalfToFloat widens a number of 16 bits, as cvt.f32.f16 does.
//
// A pure function without a table, so that the compiler can use vectors.
#pragma once

#include <bit>
#include <cstdint>

#include "tests/gpu/ptx/machine/float_lanes.h"

namespace specd::ptx {

// IEEE 754 binary16: 1 sign bit, 5 of the exponent (bias 15), 10 of the fraction.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t rest = half & 0x7FFFu;
  // As a float, the same bits are a number 2^112 times too small: the biases are 15 and 127.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const bool is_finite = rest < 0x7C00u;
  const uint32_t special = rest == 0x7C00u ? 0x7F800000u : 0x7FFFFFFFu;
  const uint32_t magnitude = is_finite ? std::bit_cast<uint32_t>(scaled) : special;
  const bool is_nan = rest > 0x7C00u;
  return std::bit_cast<float>(is_nan ? special : sign | magnitude);
}

}  // namespace specd::ptx
