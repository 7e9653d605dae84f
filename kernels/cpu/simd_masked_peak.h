// MaskedPeak finds the largest elements of steps under a mask as they lie, for PlainTiles with
// AVX-512.
//
// simd_float.h says who may include this. Thread-compatible.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_block.h"
#include "kernels/cpu/simd_lanes.h"

namespace specd {
inline namespace HWY_NAMESPACE {

// The largest elements of steps under a mask, and whether a mask leaves a NaN.
template <DType kDType>
class MaskedPeak {
 public:
  // Lane v of the step counts if bit v of the words is set. The largest lies in any lane.
  SPECD_INLINE SimdFloat OfStep(const char* step, const uint32_t* words) {
    // Integers of 16 bits have the order of the elements if the lower bits of negative ones are
    // flipped. A mask takes 32 of them without another instruction.
    const __m512i none = KeysOf(_mm512_set1_epi16(kNegativeInfinity));
    __m512i most = none;
    __m512i least = none;
#pragma GCC unroll 8
    for (int32_t i = 0; i < kLanes / 32; ++i) {
      const __m512i keys = KeysOf(_mm512_mask_loadu_epi16(_mm512_set1_epi16(kNegativeInfinity),
                                                          _cvtu32_mask32(words[i]), step + i * 64));
      most = _mm512_max_epi16(most, keys);
      least = _mm512_min_epi16(least, keys);
    }
    const __m512i infinity = _mm512_set1_epi16(static_cast<int16_t>(kNegativeInfinity & 0x7FFF));
    nan_ |= _mm512_cmpgt_epi16_mask(most, infinity) | _mm512_cmplt_epi16_mask(least, none);
    return LargerOfPairs(KeysOf(most));
  }
  SPECD_INLINE bool has_nan() const { return nan_ != 0; }

 private:
  static constexpr auto kNegativeInfinity =
      static_cast<int16_t>(kDType == DType::kBFloat16 ? 0xFF80 : 0xFC00);

  // Its own inverse.
  SPECD_INLINE static __m512i KeysOf(__m512i bits) {
    const __m512i lower = _mm512_srli_epi16(_mm512_srai_epi16(bits, 15), 1);
    return _mm512_xor_si512(bits, lower);
  }
  SPECD_INLINE static SimdFloat LargerOfPairs(__m512i bits) {
    if constexpr (kDType == DType::kBFloat16) {
      const auto words = hn::Vec<Uint32Tag>{bits};
      return Larger{}(FloatOf(hn::ShiftLeft<16>(words)),
                      FloatOf(hn::And(words, hn::Set(Uint32Tag(), 0xFFFF0000u))));
    } else {
      const auto half = [](__m256i x) { return SimdFloat(SimdFloat::Raw{_mm512_cvtph_ps(x)}); };
      return Larger{}(half(_mm512_castsi512_si256(bits)), half(_mm512_extracti64x4_epi64(bits, 1)));
    }
  }

  __mmask32 nan_ = 0;
};

template <>
class MaskedPeak<DType::kFloat32> {
 public:
  SPECD_INLINE SimdFloat OfStep(const char* step, const uint32_t* words) {
    SimdBlock max = -kInfinity;
#pragma GCC unroll 4
    for (int32_t b = 0; b < kLanes / kBlockLanes; ++b) {
      const SimdBlock x = SimdBlock::Of([&](int32_t i) {
        const auto bits = static_cast<__mmask16>(words[2 * b + i / 2] >> (i % 2 * kSimdWidth));
        return SimdFloat(SimdFloat::Raw{_mm512_mask_loadu_ps(
            _mm512_set1_ps(-kInfinity), bits, step + (b * kBlock + i) * kSimdWidth * 4)});
      });
      ForEachOfBlock([&](int32_t i) { max.of[i] = Larger{}(x.of[i], max.of[i]); });
      nan_ = nan_ | Unordered(x.of[0], x.of[1]) | Unordered(x.of[2], x.of[3]);
    }
    return Fold<kBlock>(max.of);
  }
  SPECD_INLINE bool has_nan() const { return !NoneOf(nan_); }

 private:
  SimdMask nan_ = NoLanes();
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
