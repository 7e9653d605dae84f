// SimdTeam: a Team over vector registers, the one that serves on processors with AVX2 or AVX-512.
//
// Its bits are ScalarTeam's. A lane of tiles.h is a lane of a register: 256 of them are 16
// registers of AVX-512 or 32 of AVX2, which are more than a core has beside the constants of Exp2,
// so a pass takes them 8 at a time. See simd_float.h for who may include this.
#pragma once

#include <type_traits>

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"
#include "kernels/cpu/simd_float.h"
#include "kernels/cpu/simd_weights.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {
inline namespace HWY_NAMESPACE {

class SimdTeam {
 public:
  // `values` is the row itself where it is fp32 and the tile is full, else `buffer`. Registers
  // wholly beyond the row's end, up to `end`, hold -inf; what lies behind `end` is left out.
  struct Tile {
    const char* values;
    int32_t count;  // elements of the row
    int32_t end;    // the same, rounded up to a multiple of kLanes
    alignas(64) float buffer[kTileSize];

    SPECD_INLINE SimdFloat At(int32_t element) const { return SimdTeam::At(values, element); }
  };

  SimdTeam() = default;
  SPECD_INLINE explicit SimdTeam(const TeamSeat& seat) : seat_(seat) {}

  SPECD_INLINE int32_t group() const { return seat_.group; }
  SPECD_INLINE int32_t num_groups() const { return seat_.num_groups; }
  SPECD_INLINE bool leader() const { return seat_.group == 0; }
  SPECD_INLINE void Sync() {
    if (seat_.num_groups > 1) seat_.barrier->Wait();
  }

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    *where = value;
  }

  template <typename F>
  SPECD_INLINE void Load(const RowView& row, int32_t tile_index, const F& f, Tile* tile) const {
    const int32_t first = tile_index * kTileSize;
    const int32_t rest = row.vocab_size - first;
    const int32_t count = rest < kTileSize ? rest : kTileSize;
    const char* source = static_cast<const char*>(row.data) + first * SizeBytes(row.dtype);
    tile->values = reinterpret_cast<const char*>(tile->buffer);
    tile->count = count;
    tile->end = (count + kLanes - 1) / kLanes * kLanes;
    switch (row.dtype) {
      case DType::kFloat32:
        if (std::is_same_v<F, Identity> && count == kTileSize) {
          tile->values = source;
          return;
        }
        return Convert<DType::kFloat32>(source, f, tile);
      case DType::kBFloat16:
        return Convert<DType::kBFloat16>(source, f, tile);
      case DType::kFloat16:
        return Convert<DType::kFloat16>(source, f, tile);
    }
  }

  SPECD_INLINE void ApplyMask(const uint32_t* words, int32_t tile_index, Tile* tile) const {
    // Words beyond the vocabulary do not exist; the elements there are -inf already.
    const auto* bits = reinterpret_cast<const uint8_t*>(words + tile_index * (kTileSize / 32));
    Rewrite(tile->count, tile, [&](SimdFloat x, int32_t e) {
      return Select(SimdMask(hn::LoadMaskBits(FloatTag(), bits + e / 8)), x, -kInfinity);
    });
  }

  SPECD_INLINE void Set(int32_t element, float value, Tile* tile) const {
    Own(tile);
    tile->buffer[element] = value;
  }

  SPECD_INLINE void Keep(float value, int32_t last, Tile* tile) const {
    Rewrite(tile->end, tile, [&](SimdFloat x, int32_t e) {
      const SimdMask kept = x > value || (x == value && FirstLanes(int64_t{last} + 1 - e));
      return Select(kept, x, -kInfinity);
    });
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) const {
    SimdFloat max[kChunk];
    for (SimdFloat& x : max) x = -kInfinity;
    SimdMask nan = NoLanes();
    for (int32_t e = 0; e < End(tiles...); e += kChunkLanes) {
#pragma GCC unroll 16
      for (int32_t i = 0; i < kChunk; i += 2) {
        const SimdFloat x = f(tiles.At(e + i * kSimdWidth)...);
        const SimdFloat y = f(tiles.At(e + (i + 1) * kSimdWidth)...);
        max[i] = LargerOrSecond(x, max[i]);
        max[i + 1] = LargerOrSecond(y, max[i + 1]);
        nan = nan | Unordered(x, y);
      }
    }
#pragma GCC unroll 16
    for (int32_t half = kChunk / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int32_t i = 0; i < half; ++i) max[i] = LargerOrSecond(max[i + half], max[i]);
    }
    if (!NoneOf(nan)) return __builtin_nanf("");
    // +0 where zeros of both signs are the largest, whichever came first.
    return hn::GetLane(hn::MaxOfLanes(FloatTag(), max[0].raw)) + 0.0f;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) const {
    constexpr int32_t kNumChunks = kLanes / kChunkLanes;
    SimdFloat of_chunk[kNumChunks];
    for (int32_t chunk = 0; chunk < kNumChunks; ++chunk) {
      SimdFloat sum[kChunk];
      for (SimdFloat& x : sum) x = 0.0f;
      for (int32_t e = chunk * kChunkLanes; e < End(tiles...); e += kLanes) {
#pragma GCC unroll 16
        for (int32_t i = 0; i < kChunk; ++i) sum[i] = sum[i] + f(tiles.At(e + i * kSimdWidth)...);
      }
      of_chunk[chunk] = AddNeighbours<kChunk>(sum);
    }
    SimdFloat sum = AddNeighbours<kNumChunks>(of_chunk);
    for (int32_t lanes = kSimdWidth; lanes > 1; lanes /= 2) sum = AddPairs(sum, sum);
    return hn::GetLane(sum.raw);
  }

  template <typename F>
  SPECD_INLINE int32_t Count(const F& f, const Tile& tile) const {
    int32_t count = 0;
    VisitMasks(f, tile, [&](SimdMask found, int32_t) {
      count += static_cast<int32_t>(hn::CountTrue(FloatTag(), found.raw));
    });
    return count;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t SumWeights(const F& f, int32_t exponent, const Tiles&... tiles) const {
    const SimdWeights weights(exponent);
    Uint64Vector sum = hn::Zero(Uint64Tag());
    for (int32_t e = 0; e < End(tiles...); e += kSimdWidth) {
      Uint64Vector lower, upper;
      weights.Of(f(tiles.At(e)...), &lower, &upper);
      sum = hn::Add(sum, hn::Add(lower, upper));
    }
    return hn::GetLane(hn::SumOfLanes(Uint64Tag(), sum));
  }

  // A step of 256 elements is summed at once; only the one in which the prefix passes the threshold
  // is looked at one by one.
  template <typename F, typename... Tiles>
  SPECD_INLINE int32_t FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                  const Tiles&... tiles) const {
    const SimdWeights weights(exponent);
    alignas(64) uint64_t of_lane[kLanes];
    uint64_t prefix = 0;
    for (int32_t step = 0; step < End(tiles...); step += kLanes) {
      Uint64Vector sum = hn::Zero(Uint64Tag());
      for (int32_t i = 0; i < kLanes; i += kSimdWidth) {
        Uint64Vector lower, upper;
        weights.Of(f(tiles.At(step + i)...), &lower, &upper);
        hn::Store(lower, Uint64Tag(), of_lane + i);
        hn::Store(upper, Uint64Tag(), of_lane + i + kSimdWidth / 2);
        sum = hn::Add(sum, hn::Add(lower, upper));
      }
      const uint64_t after = prefix + hn::GetLane(hn::SumOfLanes(Uint64Tag(), sum));
      if (after > threshold) {
        int32_t i = 0;
        while ((prefix += of_lane[i]) <= threshold) ++i;
        return step + i;
      }
      prefix = after;
    }
    return -1;
  }

  template <typename F>
  SPECD_INLINE int32_t FindFirst(const F& f, const Tile& tile) const {
    for (int32_t e = 0; e < tile.count; e += kSimdWidth) {
      const SimdMask found = f(tile.At(e)) & FirstLanes(tile.count - e);
      const intptr_t lane = hn::FindFirstTrue(FloatTag(), found.raw);
      if (lane >= 0) return e + static_cast<int32_t>(lane);
    }
    return -1;
  }

  template <typename F>
  SPECD_INLINE int32_t Pack(const F& f, const Tile& tile, TokenId first_id, float* values,
                            TokenId* ids) const {
    int32_t count = 0;
    VisitMasks(f, tile, [&](SimdMask mask, int32_t e) {
      // One by one: few are packed, and nothing behind the last one may be written.
      for (uint32_t found = BitsOf(mask); found != 0; found &= found - 1) {
        const int32_t element = e + __builtin_ctz(found);
        values[count] = LoadElementAs<DType::kFloat32>(tile.values, element);
        ids[count] = first_id + element;
        ++count;
      }
    });
    return count;
  }

  template <typename F>
  SPECD_INLINE void Store(const F& f, const Tile& tile, int32_t count, float* out) const {
    int32_t e = 0;
    for (; e + kSimdWidth <= count; e += kSimdWidth) {
      hn::StoreU(SimdFloat(f(tile.At(e))).raw, FloatTag(), out + e);
    }
    if (e == count) return;
    hn::BlendedStore(SimdFloat(f(tile.At(e))).raw, FirstLanes(count - e).raw, FloatTag(), out + e);
  }

 private:
  // Registers that a pass keeps at once.
  static constexpr int32_t kChunk = 8;
  static constexpr int32_t kChunkLanes = kChunk * kSimdWidth;

  SPECD_INLINE static SimdFloat At(const char* values, int32_t element) {
    return SimdFloat(hn::LoadU(FloatTag(), reinterpret_cast<const float*>(values) + element));
  }

  // Tiles that are read together are of rows of one vocabulary.
  template <typename... Rest>
  SPECD_INLINE static int32_t End(const Tile& first, const Rest&...) {
    return first.end;
  }

  // Calls visit(mask, first element) for every register of the row's elements, the mask telling
  // where f is true.
  template <typename F, typename Visit>
  SPECD_INLINE static void VisitMasks(const F& f, const Tile& tile, const Visit& visit) {
    int32_t e = 0;
    for (; e + kSimdWidth <= tile.count; e += kSimdWidth) visit(f(tile.At(e)), e);
    if (e < tile.count) visit(f(tile.At(e)) & FirstLanes(tile.count - e), e);
  }

  SPECD_INLINE static SimdMask NoLanes() { return SimdMask(hn::FirstN(FloatTag(), 0)); }
  SPECD_INLINE static bool NoneOf(SimdMask mask) { return hn::AllFalse(FloatTag(), mask.raw); }
  // Lanes 0 .. count - 1: none where that is negative, all where there are not so many.
  SPECD_INLINE static SimdMask FirstLanes(int64_t count) {
    return SimdMask(hn::FirstN(FloatTag(), static_cast<size_t>(count < 0 ? 0 : count)));
  }

  SPECD_INLINE static uint32_t BitsOf(SimdMask mask) {
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(FloatTag(), mask.raw, bytes);
    uint32_t bits;
    __builtin_memcpy(&bits, bytes, sizeof(bits));
    return bits;
  }

  // x > y ? x : y: the hardware's maximum gives its second operand where one is NaN.
  SPECD_INLINE static SimdFloat LargerOrSecond(SimdFloat x, SimdFloat y) {
    return SimdFloat(hn::Max(x.raw, y.raw));
  }
  SPECD_INLINE static SimdMask Unordered(SimdFloat x, SimdFloat y) {
#if HWY_TARGET <= HWY_AVX3
    return SimdMask(SimdMask::Raw{_mm512_cmp_ps_mask(x.raw.raw, y.raw.raw, _CMP_UNORD_Q)});
#else
    return SimdMask(
        hn::MaskFromVec(hn::Vec<FloatTag>{_mm256_cmp_ps(x.raw.raw, y.raw.raw, _CMP_UNORD_Q)}));
#endif
  }

  // The sums of neighbouring lanes: those of `a`, then those of `b`.
  SPECD_INLINE static SimdFloat AddPairs(SimdFloat a, SimdFloat b) {
    return SimdFloat(hn::ConcatEven(FloatTag(), b.raw, a.raw)) +
           SimdFloat(hn::ConcatOdd(FloatTag(), b.raw, a.raw));
  }

  // Levels of the sum tree until what stood in `kCount` registers stands in one.
  template <int32_t kCount>
  SPECD_INLINE static SimdFloat AddNeighbours(SimdFloat* sum) {
#pragma GCC unroll 16
    for (int32_t half = kCount / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int32_t i = 0; i < half; ++i) sum[i] = AddPairs(sum[2 * i], sum[2 * i + 1]);
    }
    return sum[0];
  }

  SPECD_INLINE static void Write(SimdFloat x, int32_t element, Tile* tile) {
    hn::Store(x.raw, FloatTag(), tile->buffer + element);
  }

  // Replaces each x of the first `count` elements by f(x, element), and the tile is no longer the
  // row itself. (If it was, it was full: nothing is missing behind `count`.)
  template <typename F>
  SPECD_INLINE static void Rewrite(int32_t count, Tile* tile, const F& f) {
    const char* values = tile->values;
    for (int32_t e = 0; e < count; e += kSimdWidth) Write(f(At(values, e), e), e, tile);
    tile->values = reinterpret_cast<const char*>(tile->buffer);
  }

  // Before a tile is written in part it must not be the row itself any more.
  SPECD_INLINE static void Own(Tile* tile) {
    if (tile->values == reinterpret_cast<const char*>(tile->buffer)) return;
    Rewrite(kTileSize, tile, [](SimdFloat x, int32_t) { return x; });
  }

  template <DType kDType>
  SPECD_INLINE static SimdFloat LoadAs(const char* source) {
    if constexpr (kDType == DType::kFloat32) {
      return SimdFloat(hn::LoadU(FloatTag(), reinterpret_cast<const float*>(source)));
    } else if constexpr (kDType == DType::kBFloat16) {
      const hn::Rebind<uint16_t, FloatTag> half;
      const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(source));
      return FloatOf(hn::ShiftLeft<16>(hn::PromoteTo(Uint32Tag(), bits)));
    } else {
      const hn::Rebind<hwy::float16_t, FloatTag> half;
      const auto bits = hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(source));
      return SimdFloat(hn::PromoteTo(FloatTag(), bits));
    }
  }

  template <DType kDType, typename F>
  SPECD_INLINE static void Convert(const char* source, const F& f, Tile* tile) {
    constexpr int32_t kElementBytes = SizeBytes(kDType);
    int32_t e = 0;
    for (; e + kSimdWidth <= tile->count; e += kSimdWidth) {
      Write(f(LoadAs<kDType>(source + e * kElementBytes)), e, tile);
    }
    if (e == tile->end) return;
    // Nothing behind the row is read.
    const int32_t rest = tile->count - e;
    alignas(64) char padded[kSimdWidth * kElementBytes] = {};
    for (int32_t i = 0; i < rest * kElementBytes; ++i) padded[i] = source[e * kElementBytes + i];
    Write(Select(FirstLanes(rest), f(LoadAs<kDType>(padded)), -kInfinity), e, tile);
    for (e += kSimdWidth; e < tile->end; e += kSimdWidth) Write(-kInfinity, e, tile);
  }

  TeamSeat seat_;
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
