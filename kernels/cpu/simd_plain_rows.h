// PlainTiles makes the first pass over a row that nothing changes, for SimdTeam with AVX-512.
//
// A tile's weights need its maximum. A pass over one tile after another therefore loads a tile, and
// computes only then. PlainTiles adds the weights of a tile while it loads the next one and finds
// the maximum there, so memory and arithmetic work at the same time. 16-bit elements are converted
// where they are used, and no copy of a tile is written. simd_float.h says who may include this.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_lanes.h"
#include "kernels/cpu/simd_load.h"

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
  [[gnu::noinline]] int32_t ReadWithSums(int32_t t, int32_t stride, float scale) const {
    if (t >= num_full_) return t;
    const uint32_t before = FlushDenormals();
    t = ReadFlushed(t, stride, scale);
    SetControlWord(before);
    return t;
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

  SPECD_INLINE int32_t ReadFlushed(int32_t t, int32_t stride, float scale) const {
    SimdFloat of_step[kStepsPerTile];
    LoadPeaks(TileAt(t), TileAfter(t, stride), of_step);
    while (t < num_full_) {
      const float max = LargestOfSteps(of_step, stats_.peaks + t * kStepsPerTile);
      if (max - max != 0.0f) return t;
      const char* const next = TileAfter(t, stride);
      const float sum = SumBeside(TileAt(t), max, scale, next, TileAfter(t, 2 * stride), of_step);
      if (IsNan(sum)) return t;
      stats_.maxima[t] = max;
      stats_.sums[t] = sum;
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
      SimdBlock max = -kInfinity;
#pragma GCC unroll 4
      for (int32_t b = 0; b < kNumBlocks; ++b, tile += kBlockBytes, ahead += kBlockBytes) {
        const SimdBlock x = Block::Of(tile);
        Offer(x, &max);
        nan = nan | Unordered(x.of[0], x.of[1]) | Unordered(x.of[2], x.of[3]);
        Fetch(ahead);
      }
      of_step[step] = Fold<kBlock>(max.of);
    }
    return nan;
  }

  // NaN is left out.
  SPECD_INLINE static void Offer(const SimdBlock& x, SimdBlock* max) {
    ForEachOfBlock([&](int32_t i) { max->of[i] = Larger{}(x.of[i], max->of[i]); });
  }

  // The sum of a tile's weights, NaN if it has one, and the peaks of the next tile.
  SPECD_INLINE static float SumBeside(const char* tile, float max, float scale, const char* next,
                                      const char* ahead, SimdFloat* of_step) {
    constexpr int32_t kStepsAtOnce = kStepsPerTile / 2;
    static_assert(kNumBlocks == kStepsAtOnce, "half a block column beside a step");
    SimdFloat of_block[kNumBlocks];
    for (int32_t b = 0; b < kNumBlocks; ++b) {
      SimdBlock sum = 0.0f;
      const char* source = tile + b * kBlockBytes;
      for (int32_t half = 0; half < 2; ++half) {
        SimdBlock peak = -kInfinity;
#pragma GCC unroll 4
        for (int32_t i = 0; i < kStepsAtOnce; ++i) {
          sum = sum + Exp2Flushed((Block::Of(source) - max) * scale);
          Offer(Block::Of(next), &peak);
          Fetch(ahead);
          source += kNumBlocks * kBlockBytes;
          next += kBlockBytes;
          ahead += kBlockBytes;
        }
        of_step[2 * b + half] = Fold<kBlock>(peak.of);
      }
      of_block[b] = Block::Join(sum);
    }
    return SumOfBlocks(of_block);
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
