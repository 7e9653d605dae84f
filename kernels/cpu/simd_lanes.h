// The lane functions give SimdTeam masks of the first lanes of registers, and trees over lanes.
//
// simd_float.h says who may include this. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/bodies/tiles.h"
#include "kernels/cpu/simd_float.h"

namespace specd {
inline namespace HWY_NAMESPACE {

struct Plus {
  SPECD_INLINE SimdFloat operator()(SimdFloat a, SimdFloat b) const { return a + b; }
};
// a > b ? a : b. If one operand is NaN, the hardware's maximum is its second operand.
struct Larger {
  SPECD_INLINE SimdFloat operator()(SimdFloat a, SimdFloat b) const {
    return SimdFloat(hn::Max(a.raw, b.raw));
  }
};

SPECD_INLINE SimdMask NoLanes() { return SimdMask(hn::FirstN(FloatTag(), 0)); }
SPECD_INLINE bool NoneOf(SimdMask mask) { return hn::AllFalse(FloatTag(), mask.raw); }
// The lanes 0 .. count - 1: none if count is negative, all if there are fewer lanes.
SPECD_INLINE SimdMask FirstLanes(int64_t count) {
  return SimdMask(hn::FirstN(FloatTag(), static_cast<size_t>(count < 0 ? 0 : count)));
}

SPECD_INLINE uint32_t BitsOf(SimdMask mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(FloatTag(), mask.raw, bytes);
  uint32_t bits;
  __builtin_memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

SPECD_INLINE SimdMask Unordered(SimdFloat x, SimdFloat y) {
#if HWY_TARGET <= HWY_AVX3
  return SimdMask(SimdMask::Raw{_mm512_cmp_ps_mask(x.raw.raw, y.raw.raw, _CMP_UNORD_Q)});
#else
  return SimdMask(
      hn::MaskFromVec(hn::Vec<FloatTag>{_mm256_cmp_ps(x.raw.raw, y.raw.raw, _CMP_UNORD_Q)}));
#endif
}

// The largest of `kCount` registers, lane by lane. This is a template because the compiler leaves a
// loop over a shrinking count in memory.
template <int32_t kCount>
SPECD_INLINE SimdFloat Fold(SimdFloat* max) {
  if constexpr (kCount == 1) {
    return max[0];
  } else {
#pragma GCC unroll 16
    for (int32_t i = 0; i < kCount / 2; ++i) max[i] = Larger{}(max[i], max[i + kCount / 2]);
    return Fold<kCount / 2>(max);
  }
}

// Joins neighbouring lanes: first those of `a`, then those of `b`.
template <typename Join>
SPECD_INLINE SimdFloat JoinPairs(SimdFloat a, SimdFloat b, const Join& join) {
  return join(SimdFloat(hn::ConcatEven(FloatTag(), b.raw, a.raw)),
              SimdFloat(hn::ConcatOdd(FloatTag(), b.raw, a.raw)));
}

// Applies levels of a tree over lanes until one register holds the contents of `kCount`.
template <int32_t kCount, typename Join>
SPECD_INLINE SimdFloat JoinNeighbours(SimdFloat* x, const Join& join) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
#pragma GCC unroll 16
    for (int32_t i = 0; i < kCount / 2; ++i) x[i] = JoinPairs(x[2 * i], x[2 * i + 1], join);
    return JoinNeighbours<kCount / 2>(x, join);
  }
}

// The sum of a tile, from registers that each hold a block of its lanes.
template <size_t kNumBlocks>
SPECD_INLINE float SumOfBlocks(SimdFloat (&of_block)[kNumBlocks]) {
  SimdFloat sum = JoinNeighbours<static_cast<int32_t>(kNumBlocks)>(of_block, Plus{});
  for (int32_t lanes = kSimdWidth; lanes > 1; lanes /= 2) sum = JoinPairs(sum, sum, Plus{});
  return hn::GetLane(sum.raw);
}

// Writes the largest lane of each step's register, and returns the largest of all. A zero is +0.
SPECD_INLINE float LargestOfSteps(SimdFloat* of_step, float* out) {
  SimdFloat max = JoinNeighbours<kStepsPerTile>(of_step, Larger{});
  for (int32_t lanes = kSimdWidth; lanes > kStepsPerTile; lanes /= 2) {
    max = JoinPairs(max, max, Larger{});
  }
  max = Select(max == 0.0f, 0.0f, max);
  // The lanes after the first ones repeat.
  hn::BlendedStore(max.raw, FirstLanes(kStepsPerTile).raw, FloatTag(), out);
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), max.raw));
}

}  // namespace HWY_NAMESPACE
}  // namespace specd
