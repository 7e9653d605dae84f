// PlainTiles reads rows as they lie, for SimdTeam with AVX-512: the first pass over a row that
// nothing changes, the peaks of one under masks, and the sum of a function of two rows.
//
// A tile's weights need its maximum. A pass over one tile after another therefore loads a tile, and
// computes only then. PlainTiles adds the weights of a tile while it loads the next one and finds
// the maximum there, so memory and arithmetic work at the same time. 16-bit elements are converted
// where they are used, and no copy of a tile is written. simd_float.h says who may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_lanes.h"
#include "kernels/cpu/simd_load.h"
#include "kernels/cpu/simd_masked_peak.h"

namespace specd {
inline namespace HWY_NAMESPACE {

// The compiler moves no access to memory over a fence, and so nothing that it computes with.
SPECD_INLINE void SetControlWord(uint32_t word) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  _mm_setcsr(word);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// Results below 2^-126 are 0 until SetControlWord has what is returned here. A weight has then no
// need of a comparison. A destructor would bring tables of exceptions, which objects for other
// processors share.
SPECD_INLINE uint32_t FlushDenormals() {
  constexpr uint32_t kFlushToZero = 1u << 15;
  const uint32_t before = _mm_getcsr();
  SetControlWord(before | kFlushToZero);
  return before;
}

// The elements of consecutive lanes, in an order that Join knows.
template <DType kDType>
struct PlainBlock {
  SPECD_INLINE static SimdBlock Of(const char* source) {
    return SimdBlock::Of(
        [&](int32_t i) { return LoadAs<kDType>(source + i * kSimdWidth * SizeBytes(kDType)); });
  }
  // Adds neighbouring lanes until one register holds the block.
  SPECD_INLINE static SimdFloat Join(SimdBlock sum) {
    return JoinNeighbours<kBlock>(sum.of, Plus{});
  }
};

// A word has an even lane in its lower half and the next lane in its upper half.
template <>
struct PlainBlock<DType::kBFloat16> {
  SPECD_INLINE static SimdBlock Of(const char* source) {
    const auto* const words = reinterpret_cast<const uint32_t*>(source);
    return SimdBlock::Of([&](int32_t i) {
      const auto pair = hn::LoadU(Uint32Tag(), words + i / 2 * kSimdWidth);
      return FloatOf(i % 2 == 0 ? hn::ShiftLeft<16>(pair)
                                : hn::And(pair, hn::Set(Uint32Tag(), 0xFFFF0000u)));
    });
  }
  SPECD_INLINE static SimdFloat Join(const SimdBlock& sum) {
    return JoinPairs(sum.of[0] + sum.of[1], sum.of[2] + sum.of[3], Plus{});
  }
};

template <DType kDType>
class PlainTiles {
 public:
  SPECD_INLINE PlainTiles(const RowView& row, const RowStats& stats)
      : row_(row), stats_(stats), num_full_(row.vocab_size / kTileSize) {}

  // Notes maxima, peaks and sums of the tiles t, t + stride and so on, and returns the first tile
  // that it leaves. That one is not full, or has a NaN or no finite maximum.
  template <size_t kNumSums>
  [[gnu::noinline]] int32_t ReadWithSums(int32_t t, int32_t stride,
                                         const ScaledSums (&sums)[kNumSums]) const {
    if (t >= num_full_) return t;
    const uint32_t before = FlushDenormals();
    t = ReadFlushed(t, stride, sums);
    SetControlWord(before);
    return t;
  }

  // Writes the peaks of tile t under two masks, and the largest; a null mask allows all. It returns
  // false if the tile is not full, or if an allowed element is a NaN.
  [[gnu::noinline]] bool ReadPeaks(int32_t t, int32_t stride, const uint32_t* mask,
                                   const uint32_t* other, float* peaks, float* max) const {
    if (t >= num_full_) return false;
    SimdFloat of_step[kStepsPerTile];
    const int32_t after = t + stride < num_full_ ? t + stride : t;
    bool has_nan = false;
    if (mask == nullptr && other == nullptr) {
      has_nan = !NoneOf(LoadPeaks(TileAt(t), TileAt(after), of_step));
    } else {
      const TwoMasks masks{mask != nullptr ? mask : other, other != nullptr ? other : mask};
      has_nan = LoadMaskedPeaks(t, after, masks, of_step);
    }
    *max = LargestOfSteps(of_step, peaks);
    return !has_nan;
  }

  // The sum of f(x, y) over tile t of two rows, as SimdTeam's Sum has it. REQUIRES: the tile is
  // full.
  template <typename F>
  [[gnu::noinline]] static float SumOfTwo(const F& f, const char* xs, const char* ys,
                                          int32_t bytes_ahead) {
    SimdFloat of_block[kNumBlocks];
    for (int32_t b = 0; b < kNumBlocks; ++b) {
      SimdBlock sum = 0.0f;
      const char* x = xs + b * kBlockBytes;
      const char* y = ys + b * kBlockBytes;
      for (int32_t step = 0; step < kStepsPerTile; ++step) {
        sum = sum + f(Block::Of(x), Block::Of(y));
        Fetch(x + bytes_ahead);
        Fetch(y + bytes_ahead);
        x += kNumBlocks * kBlockBytes;
        y += kNumBlocks * kBlockBytes;
      }
      of_block[b] = Block::Join(sum);
    }
    return SumOfBlocks(of_block);
  }

  // The same without sums. It leaves a tile that is not full or has a NaN.
  [[gnu::noinline]] int32_t ReadMaxima(int32_t t, int32_t stride) const {
    SimdFloat of_step[kStepsPerTile];
    for (; t < num_full_; t += stride) {
      if (!NoneOf(LoadPeaks(TileAt(t), TileAfter(t, stride), of_step))) return t;
      stats_.maxima[t] = LargestOfSteps(of_step, stats_.peaks + t * kStepsPerTile);
      stats_.sums[t] = 0;
    }
    return t;
  }

 private:
  using Block = PlainBlock<kDType>;
  static constexpr int32_t kNumBlocks = kLanes / kBlockLanes;
  static constexpr int32_t kBlockBytes = kBlockLanes * SizeBytes(kDType);
  static constexpr int32_t kStepBytes = kNumBlocks * kBlockBytes;
  static constexpr int32_t kWordsPerStep = kLanes / 32;
  static constexpr int32_t kWordsPerTile = kTileSize / 32;

  template <size_t kNumSums>
  SPECD_INLINE int32_t ReadFlushed(int32_t t, int32_t stride,
                                   const ScaledSums (&sums)[kNumSums]) const {
    SimdFloat of_step[kStepsPerTile];
    LoadPeaks(TileAt(t), TileAfter(t, stride), of_step);
    while (t < num_full_) {
      const float max = LargestOfSteps(of_step, stats_.peaks + t * kStepsPerTile);
      if (max - max != 0.0f) return t;
      const char* const next = TileAfter(t, stride);
      float of_tile[kNumSums];
      SumBeside(TileAt(t), max, sums, next, TileAfter(t, 2 * stride), of_step, of_tile);
      if (IsNan(of_tile[0])) return t;
      stats_.maxima[t] = max;
      for (size_t s = 0; s < kNumSums; ++s) sums[s].sums[t] = of_tile[s];
      t += stride;
    }
    return t;
  }

  SPECD_INLINE const char* TileAt(int32_t t) const {
    return static_cast<const char*>(row_.data) + int64_t{t} * kTileSize * SizeBytes(kDType);
  }

  // The tile `distance` after t; t itself if no full one is there.
  SPECD_INLINE const char* TileAfter(int32_t t, int32_t distance) const {
    return TileAt(t + distance < num_full_ ? t + distance : t);
  }
  SPECD_INLINE static void Fetch(const char* source) {
    for (int32_t byte = 0; byte < kBlockBytes; byte += 64) __builtin_prefetch(source + byte);
  }

  // The lanes that met a NaN are returned.
  SPECD_INLINE static SimdMask LoadPeaks(const char* tile, const char* ahead, SimdFloat* of_step) {
    SimdMask nan = NoLanes();
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      nan = nan | LoadPeak(tile + step * kStepBytes, ahead + step * kStepBytes, &of_step[step]);
    }
    return nan;
  }
  SPECD_INLINE static SimdMask LoadPeak(const char* step, const char* ahead, SimdFloat* peak) {
    SimdMask nan = NoLanes();
    SimdBlock max = -kInfinity;
#pragma GCC unroll 4
    for (int32_t b = 0; b < kNumBlocks; ++b, step += kBlockBytes, ahead += kBlockBytes) {
      nan = nan | OfferAll(Block::Of(step), &max);
      Fetch(ahead);
    }
    *peak = Fold<kBlock>(max.of);
    return nan;
  }

  // Words of the ids that both masks allow.
  struct TwoMasks {
    const uint32_t* mask;
    const uint32_t* other;

    // Whether any id of a step is allowed.
    SPECD_INLINE bool Copy(int32_t t, int32_t step, uint32_t* words) const {
      const int32_t first = t * kWordsPerTile + step * kWordsPerStep;
      uint32_t any = 0;
      for (int32_t i = 0; i < kWordsPerStep; ++i) {
        words[i] = mask[first + i] & other[first + i];
        any |= words[i];
      }
      return any != 0;
    }
  };

  // The peaks of the elements that the masks allow, and whether one of these is NaN. A step without
  // any is neither read nor fetched.
  SPECD_INLINE bool LoadMaskedPeaks(int32_t t, int32_t after, const TwoMasks& masks,
                                    SimdFloat* of_step) const {
    MaskedPeak<kDType> peak;
    uint32_t words[kWordsPerStep];
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (masks.Copy(after, step, words)) {
        const char* const ahead = TileAt(after) + step * kStepBytes;
        for (int32_t b = 0; b < kNumBlocks; ++b) Fetch(ahead + b * kBlockBytes);
      }
      of_step[step] = masks.Copy(t, step, words) ? peak.OfStep(TileAt(t) + step * kStepBytes, words)
                                                 : SimdFloat(-kInfinity);
    }
    return peak.has_nan();
  }

  // The lanes that met a NaN are returned.
  SPECD_INLINE static SimdMask OfferAll(const SimdBlock& x, SimdBlock* max) {
    Offer(x, max);
    return Unordered(x.of[0], x.of[1]) | Unordered(x.of[2], x.of[3]);
  }

  // NaN is left out.
  SPECD_INLINE static void Offer(const SimdBlock& x, SimdBlock* max) {
    ForEachOfBlock([&](int32_t i) { max->of[i] = Larger{}(x.of[i], max->of[i]); });
  }

  // The sums of a tile's weights, NaN if it has one, and the peaks of the next tile.
  template <size_t kNumSums>
  SPECD_INLINE static void SumBeside(const char* tile, float max,
                                     const ScaledSums (&sums)[kNumSums], const char* next,
                                     const char* ahead, SimdFloat* of_step, float* of_tile) {
    constexpr int32_t kStepsAtOnce = kStepsPerTile / 2;
    static_assert(kNumBlocks == kStepsAtOnce, "half a block column beside a step");
    SimdFloat of_block[kNumSums][kNumBlocks];
    for (int32_t b = 0; b < kNumBlocks; ++b) {
      SimdBlock sum[kNumSums];
      for (SimdBlock& x : sum) x = 0.0f;
      const char* source = tile + b * kBlockBytes;
      for (int32_t half = 0; half < 2; ++half) {
        SimdBlock peak = -kInfinity;
#pragma GCC unroll 4
        for (int32_t i = 0; i < kStepsAtOnce; ++i) {
          const SimdBlock below = Block::Of(source) - max;
#pragma GCC unroll 2
          for (size_t s = 0; s < kNumSums; ++s) {
            sum[s] = sum[s] + Exp2Flushed(below * sums[s].scale);
          }
          Offer(Block::Of(next), &peak);
          Fetch(ahead);
          source += kNumBlocks * kBlockBytes;
          next += kBlockBytes;
          ahead += kBlockBytes;
        }
        of_step[2 * b + half] = Fold<kBlock>(peak.of);
      }
      for (size_t s = 0; s < kNumSums; ++s) of_block[s][b] = Block::Join(sum[s]);
    }
    for (size_t s = 0; s < kNumSums; ++s) of_tile[s] = SumOfBlocks(of_block[s]);
  }

  // Exp2 while denormals are flushed, except that NaN stays NaN. The scaling of AVX-512 gives 0 for
  // -inf.
  SPECD_INLINE static SimdBlock Exp2Flushed(const SimdBlock& x) {
    const auto rounded = SimdBlock::Of([&](int32_t i) { return RoundedForExp2(x.of[i]); });
    const SimdBlock mantissa = MantissaOfExp2(x - rounded);
    return SimdBlock::Of([&](int32_t i) {
      return SimdFloat(
          SimdFloat::Raw{_mm512_scalef_ps(mantissa.of[i].raw.raw, rounded.of[i].raw.raw)});
    });
  }

  const RowView& row_;
  const RowStats& stats_;
  const int32_t num_full_;
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
