// SimdWeights computes the IntegerWeight of numerics.h for the lanes of a register, to the bit, for
// SimdTeam.
//
// Both targets multiply by powers of two, which is exact, and drop the fraction. A weight that
// would not fit gives some integer that does. SimdWeightSum adds integer weights without forming
// them one by one. simd_float.h says who may include this. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_block.h"

namespace specd {
inline namespace HWY_NAMESPACE {

using DoubleTag = hn::Repartition<double, FloatTag>;
using Uint64Tag = hn::RebindToUnsigned<DoubleTag>;
using Uint64Vector = hn::Vec<Uint64Tag>;

SPECD_INLINE double PowerOfTwo(int32_t exponent) {
  return __builtin_bit_cast(double, static_cast<uint64_t>(1023 + exponent) << 52);
}

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

// Adds the integer weights of at most a tile.
//
// An integer weight W = trunc(w * 2^40) is split at 2^24: w * 2^40 = high * 2^24 + low, with the
// nearest integer as `high` and |low| <= 2^23. Both parts are exact, and a lane of 32 bits has room
// for the sums of 256 of them. A fraction below 1 exists only if the weight needs fewer than 23
// bits. Then `high` is 0 and `low` is not negative, so truncation drops the fraction.
class SimdWeightSum {
 public:
  SPECD_INLINE explicit SimdWeightSum(int32_t exponent)
      // Two steps, because 2^(40-E) may be no float. If the first step rounds, its result is below
      // 2^-126 and ends as 0 in any case.
      : scale_(static_cast<float>(PowerOfTwo(-exponent))) {}

  SPECD_INLINE void Add(const SimdBlock& w) {
    constexpr float kOne = 0x1p40f;
    constexpr float kSplitter = 0x1.8p47f;  // adding it rounds to a multiple of 2^24
    const SimdBlock scaled = w * scale_;
    const SimdBlock shifted = Fma(scaled, kOne, kSplitter);
    const SimdBlock low = Fma(scaled, kOne, kSplitter - shifted);
    ForEachOfBlock([&](int32_t i) {
      high_[i % 2] = hn::Add(high_[i % 2], BitsOf(shifted.of[i]));
      low_[i % 2] = hn::Add(low_[i % 2], Truncated(low.of[i]));
    });
    splitters_ += kBlock * specd::BitsOf(kSplitter);
  }

  // If a weight was none, the sum is some integer below that of as many largest weights.
  SPECD_INLINE uint64_t Total() const {
    constexpr uint64_t kMax = uint64_t{kTileSize} << (kWeightBits + 1);
    const auto highs = hn::Add(high_[0], high_[1]);
    const auto high = hn::BitCast(Int32Tag(), hn::Sub(highs, hn::Set(Uint32Tag(), splitters_)));
    const int64_t total = (Lanes(high) << 24) + Lanes(low_[0]) + Lanes(low_[1]);
    return static_cast<uint64_t>(total) < kMax ? static_cast<uint64_t>(total) : kMax - 1;
  }

 private:
  using Int32Vector = hn::Vec<Int32Tag>;

  SPECD_INLINE static Int32Vector Truncated(SimdFloat x) {
#if HWY_TARGET <= HWY_AVX3
    return Int32Vector{_mm512_cvttps_epi32(x.raw.raw)};
#else
    return Int32Vector{_mm256_cvttps_epi32(x.raw.raw)};
#endif
  }

  SPECD_INLINE static int64_t Lanes(Int32Vector x) {
    alignas(64) int32_t lanes[kSimdWidth];
    hn::Store(x, Int32Tag(), lanes);
    int64_t sum = 0;
    for (const int32_t lane : lanes) sum += lane;
    return sum;
  }

  float scale_;
  uint32_t splitters_ = 0;  // the bits of all splitters in a lane of high_
  hn::Vec<Uint32Tag> high_[2] = {hn::Zero(Uint32Tag()), hn::Zero(Uint32Tag())};
  Int32Vector low_[2] = {hn::Zero(Int32Tag()), hn::Zero(Int32Tag())};
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
