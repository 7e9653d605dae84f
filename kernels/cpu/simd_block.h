// SimdBlock is four SimdFloats that an element function processes side by side, for SimdTeam.
//
// A weight is a chain of twenty operations. A core looks only so far ahead, so it overlaps too few
// chains that come one after another. In a block each operation comes four times before the next
// one. Every lane has the bits of SimdFloat. simd_float.h says who may include this. Value type.
#pragma once

#include "kernels/cpu/simd_float.h"

namespace specd {
inline namespace HWY_NAMESPACE {

inline constexpr int32_t kBlock = 4;
inline constexpr int32_t kBlockLanes = kBlock * kSimdWidth;

// Calls visit(i) for each register.
template <typename Visit>
SPECD_INLINE void ForEachOfBlock(const Visit& visit) {
#pragma GCC unroll 4
  for (int32_t i = 0; i < kBlock; ++i) visit(i);
}

struct SimdBlockMask {
  SimdMask of[kBlock];

  template <typename Join>
  SPECD_INLINE static SimdBlockMask Of(const Join& join) {
    return {{join(0), join(1), join(2), join(3)}};
  }
  friend SPECD_INLINE SimdBlockMask operator&(const SimdBlockMask& a, const SimdBlockMask& b) {
    return Of([&](int32_t i) { return a.of[i] & b.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator|(const SimdBlockMask& a, const SimdBlockMask& b) {
    return Of([&](int32_t i) { return a.of[i] | b.of[i]; });
  }
};

struct SimdBlock {
  SimdFloat of[kBlock];

  SimdBlock() = default;  // no value
  // Implicit, so that expressions may mix floats and blocks.
  SPECD_INLINE SimdBlock(float value) {
    for (SimdFloat& x : of) x = value;
  }
  template <typename Element>
  SPECD_INLINE static SimdBlock Of(const Element& element) {
    SimdBlock block;
    ForEachOfBlock([&](int32_t i) { block.of[i] = element(i); });
    return block;
  }

  friend SPECD_INLINE SimdBlock operator+(const SimdBlock& a, const SimdBlock& b) {
    return Of([&](int32_t i) { return a.of[i] + b.of[i]; });
  }
  friend SPECD_INLINE SimdBlock operator-(const SimdBlock& a, const SimdBlock& b) {
    return Of([&](int32_t i) { return a.of[i] - b.of[i]; });
  }
  friend SPECD_INLINE SimdBlock operator*(const SimdBlock& a, const SimdBlock& b) {
    return Of([&](int32_t i) { return a.of[i] * b.of[i]; });
  }
  friend SPECD_INLINE SimdBlock operator/(const SimdBlock& a, const SimdBlock& b) {
    return Of([&](int32_t i) { return a.of[i] / b.of[i]; });
  }
  friend SPECD_INLINE SimdBlock operator-(const SimdBlock& a) {
    return Of([&](int32_t i) { return -a.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator<(const SimdBlock& a, const SimdBlock& b) {
    return SimdBlockMask::Of([&](int32_t i) { return a.of[i] < b.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator<=(const SimdBlock& a, const SimdBlock& b) {
    return SimdBlockMask::Of([&](int32_t i) { return a.of[i] <= b.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator>(const SimdBlock& a, const SimdBlock& b) {
    return SimdBlockMask::Of([&](int32_t i) { return a.of[i] > b.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator>=(const SimdBlock& a, const SimdBlock& b) {
    return SimdBlockMask::Of([&](int32_t i) { return a.of[i] >= b.of[i]; });
  }
  friend SPECD_INLINE SimdBlockMask operator==(const SimdBlock& a, const SimdBlock& b) {
    return SimdBlockMask::Of([&](int32_t i) { return a.of[i] == b.of[i]; });
  }
};

SPECD_INLINE SimdBlock Fma(const SimdBlock& a, const SimdBlock& b, const SimdBlock& c) {
  return SimdBlock::Of([&](int32_t i) { return Fma(a.of[i], b.of[i], c.of[i]); });
}
SPECD_INLINE SimdBlock Select(const SimdBlockMask& condition, const SimdBlock& yes,
                              const SimdBlock& no) {
  return SimdBlock::Of([&](int32_t i) { return Select(condition.of[i], yes.of[i], no.of[i]); });
}
SPECD_INLINE SimdBlock PositivePart(const SimdBlock& x) {
  return SimdBlock::Of([&](int32_t i) { return PositivePart(x.of[i]); });
}
SPECD_INLINE SimdBlock Divide(const SimdBlock& a, const SimdBlock& b) { return a / b; }

SPECD_INLINE SimdBlock Exp2(const SimdBlock& x) {
  const auto rounded = SimdBlock::Of([&](int32_t i) { return RoundedForExp2(x.of[i]); });
  const SimdBlock mantissa = MantissaOfExp2(
      SimdBlock::Of([&](int32_t i) { return FractionForExp2(x.of[i], rounded.of[i]); }));
  return SimdBlock::Of(
      [&](int32_t i) { return ScaledForExp2(x.of[i], mantissa.of[i], rounded.of[i]); });
}

}  // namespace HWY_NAMESPACE
}  // namespace specd
