// SimdWeights computes the IntegerWeight of numerics.h for the lanes of a register, to the bit, for
// SimdTeam.
//
// Both targets multiply by powers of two, which is exact, and drop the fraction. A weight that
// would not fit gives some integer that does. simd_float.h says who may include this. Pure
// functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_float.h"

namespace specd {
inline namespace HWY_NAMESPACE {

using DoubleTag = hn::Repartition<double, FloatTag>;
using Uint64Tag = hn::RebindToUnsigned<DoubleTag>;
using Uint64Vector = hn::Vec<Uint64Tag>;

class SimdWeights {
 public:
  SPECD_INLINE explicit SimdWeights(int32_t exponent) {
#if HWY_TARGET <= HWY_AVX3
    // Two steps, because 2^(40-E) may be no float. If the first step rounds, its result is below
    // 2^-126 and ends as 0 in any case.
    scale_ = static_cast<float>(PowerOfTwo(-exponent));
#else
    scale_ = PowerOfTwo(kWeightBits - exponent);
#endif
  }

  SPECD_INLINE void Of(SimdFloat w, Uint64Vector* lower, Uint64Vector* upper) const {
#if HWY_TARGET <= HWY_AVX3
    const __m512 scaled = (w * scale_ * 0x1p40f).raw.raw;
    *lower = Bounded(_mm512_cvttps_epu64(_mm512_castps512_ps256(scaled)));
    *upper = Bounded(_mm512_cvttps_epu64(_mm512_extractf32x8_ps(scaled, 1)));
#else
    *lower = OfHalf(hn::LowerHalf(w.raw));
    *upper = OfHalf(hn::UpperHalf(hn::Half<FloatTag>(), w.raw));
#endif
  }

 private:
  static constexpr uint64_t kMax = (uint64_t{1} << (kWeightBits + 1)) - 1;

  SPECD_INLINE static double PowerOfTwo(int32_t exponent) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(1023 + exponent) << 52);
  }

#if HWY_TARGET <= HWY_AVX3
  SPECD_INLINE static Uint64Vector Bounded(__m512i weight) {
    return hn::Min(Uint64Vector{weight}, hn::Set(Uint64Tag(), kMax));
  }

  float scale_;
#else
  // 2^52 added to an integer leaves it in the low bits of the sum.
  SPECD_INLINE Uint64Vector OfHalf(hn::Vec<hn::Half<FloatTag> > w) const {
    const DoubleTag d;
    const auto whole = hn::Floor(hn::Mul(hn::PromoteTo(d, w), hn::Set(d, scale_)));
    const auto shifted = hn::BitCast(Uint64Tag(), hn::Add(whole, hn::Set(d, 0x1p52)));
    return hn::And(shifted, hn::Set(Uint64Tag(), kMax));
  }

  double scale_;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
