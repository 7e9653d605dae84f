// SimdTeam is the Team over vector registers for processors with AVX2 or AVX-512.
//
// Its bits are those of ScalarTeam. A lane of tiles.h is a lane of a register. 256 lanes are 16
// registers of AVX-512 or 32 of AVX2. Besides the constants of Exp2, a core does not have that
// many, so a pass takes them 8 at a time. simd_float.h says who may include this.
// Thread-compatible.
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/cpu/cpu_tile.h"
#include "kernels/cpu/simd_block.h"
#include "kernels/cpu/simd_float.h"
#include "kernels/cpu/simd_lanes.h"
#include "kernels/cpu/simd_load.h"
#if HWY_TARGET <= HWY_AVX3
#include "kernels/cpu/simd_plain_rows.h"
#endif
#include "kernels/cpu/simd_weights.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {
inline namespace HWY_NAMESPACE {

class SimdTeam : public CpuMasking {
 public:
  using Tile = CpuTile;
  static constexpr bool kReadsInPlace = true;

  SimdTeam() = default;
  SPECD_INLINE explicit SimdTeam(const TeamSeat& seat) : seat_(seat) {}

  SPECD_INLINE int32_t group() const { return seat_.group; }
  SPECD_INLINE int32_t num_groups() const { return seat_.num_groups; }
  SPECD_INLINE bool leader() const { return seat_.group == 0; }
  SPECD_INLINE void Sync() {
    if (seat_.num_groups > 1) seat_.barrier->Wait();
  }

  SPECD_INLINE float Agree(float value) const { return value; }

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    *where = value;
  }
  template <typename Value, typename F>
  SPECD_INLINE void Replace(Value* where, const F& f) const {
    *where = f(*where);
  }

  // A function that turns out to change nothing leaves the row in place.
  template <typename F>
  SPECD_INLINE void Load(const RowView& row, int32_t tile_index, uint32_t steps, const F& f,
                         Tile* tile) const {
    if constexpr (requires { f.IsIdentity(); }) {
      if (f.IsIdentity()) return Load(row, tile_index, steps, Identity{}, tile);
    }
    if (row.dtype == DType::kBFloat16) {
      LoadTile<DType::kBFloat16>(row, tile_index, steps, seat_.num_groups, f, tile);
    } else if (row.dtype == DType::kFloat16) {
      LoadTile<DType::kFloat16>(row, tile_index, steps, seat_.num_groups, f, tile);
    } else {
      LoadTile<DType::kFloat32>(row, tile_index, steps, seat_.num_groups, f, tile);
    }
  }

  SPECD_INLINE void ApplyMask(const Mask& mask, Tile* tile) const {
    for (const uint32_t* words : mask.masks) {
      if (words != nullptr) ApplyWords(words, mask.tile_index, tile);
    }
  }

  SPECD_INLINE void Set(int32_t element, float value, Tile* tile) const {
    const int32_t step = element / kLanes;
    if (!tile->Has(step)) return;
    const char* values = tile->steps[step];
    if (values != reinterpret_cast<const char*>(tile->BufferOf(step))) {
      FillStep(step, tile, [&](int32_t lane) { return At(values, lane); });
    }
    tile->buffer[element] = value;
  }

  template <typename ElementOf, typename ValueOf>
  SPECD_INLINE void SetEach(int32_t i, int32_t end, const ElementOf& element_of,
                            const ValueOf& value_of, Tile* tile) const {
    SetInTurn(*this, i, end, element_of, value_of, tile);
  }

  SPECD_INLINE void Keep(float value, int32_t last, Tile* tile) const {
    for (const int32_t step : StepsOf(*tile)) {
      const int64_t end = int64_t{last} + 1 - step * kLanes;
      Rewrite(step, kLanes, tile, [&](SimdFloat x, int32_t lane) {
        return Select(x > value || (x == value && FirstLanes(end - lane)), x, -kInfinity);
      });
    }
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) const {
    SimdFloat max[kChunk];
    for (SimdFloat& x : max) x = -kInfinity;
    SimdMask nan = NoLanes();
    for (const int32_t step : StepsOf(tiles...)) {
      for (int32_t lane = 0; lane < kLanes; lane += kChunkLanes) {
        nan = nan | Offer(max, f, lane, tiles.steps[step]...);
      }
    }
    if (!NoneOf(nan)) return __builtin_nanf("");
    // +0 if zeros of both signs are the largest, in any order.
    return hn::GetLane(hn::MaxOfLanes(FloatTag(), Fold<kChunk>(max).raw)) + 0.0f;
  }

  SPECD_INLINE float MaxBySteps(const Tile& tile, float* out) const {
    SimdFloat of_step[kStepsPerTile];
    for (SimdFloat& x : of_step) x = -kInfinity;
    SimdMask nan = NoLanes();
    for (const int32_t step : StepsOf(tile)) {
      SimdFloat max[kChunk];
      nan = nan | OfferStep(max, [&](int32_t lane) { return At(tile.steps[step], lane); });
      of_step[step] = Fold<kChunk>(max);
    }
    const float max = LargestOfSteps(of_step, out);
    if (!NoneOf(nan)) return __builtin_nanf("");
    return max;
  }

#if HWY_TARGET <= HWY_AVX3
  SPECD_INLINE int32_t ReadPlainTiles(const RowView& row, int32_t t, float scale, bool with_sums,
                                      const RowStats& stats) const {
    const int32_t stride = seat_.num_groups;
    const ScaledSums own{scale, stats.sums};
    const auto read = [&](const auto& tiles) {
      if (raw.sums == nullptr) {
        return with_sums ? tiles.ReadWithSums(t, stride, {own}) : tiles.ReadMaxima(t, stride);
      }
      if (with_sums && scale != raw.scale) return tiles.ReadWithSums(t, stride, {own, raw});
      const int32_t end = tiles.ReadWithSums(t, stride, {raw});
      for (int32_t i = t; i < end; i += stride) stats.sums[i] = with_sums ? raw.sums[i] : 0.0f;
      return end;
    };
    if (row.dtype == DType::kBFloat16) return read(PlainTiles<DType::kBFloat16>(row, stats));
    if (row.dtype == DType::kFloat16) return read(PlainTiles<DType::kFloat16>(row, stats));
    return read(PlainTiles<DType::kFloat32>(row, stats));
  }

  SPECD_INLINE bool ReadPeaks(const RowView& row, int32_t t, const uint32_t* mask,
                              const uint32_t* other, const RowStats& stats, float* max) const {
    const auto read = [&](const auto& tiles) {
      return tiles.ReadPeaks(t, seat_.num_groups, mask, other, stats.peaks + t * kStepsPerTile,
                             max);
    };
    if (row.dtype == DType::kBFloat16) return read(PlainTiles<DType::kBFloat16>(row, stats));
    if (row.dtype == DType::kFloat16) return read(PlainTiles<DType::kFloat16>(row, stats));
    return read(PlainTiles<DType::kFloat32>(row, stats));
  }

  // fp32 rows are read in place anyway.
  template <typename F>
  SPECD_INLINE bool SumPlain(const F& f, const RowView& x, const RowView& y, int32_t t,
                             float* sum) const {
    const bool is_full = (t + 1) * kTileSize <= x.vocab_size;
    if (!is_full || x.dtype != y.dtype || x.dtype == DType::kFloat32) return false;
    constexpr int32_t kTileBytes = kTileSize * 2;
    const auto tile_of = [t](const RowView& row) {
      return static_cast<const char*>(row.data) + int64_t{t} * kTileBytes;
    };
    const bool has_next = (t + seat_.num_groups + 1) * kTileSize <= x.vocab_size;
    const int32_t bytes_ahead = has_next ? seat_.num_groups * kTileBytes : 0;
    *sum = x.dtype == DType::kBFloat16
               ? PlainTiles<DType::kBFloat16>::SumOfTwo(f, tile_of(x), tile_of(y), bytes_ahead)
               : PlainTiles<DType::kFloat16>::SumOfTwo(f, tile_of(x), tile_of(y), bytes_ahead);
    return true;
  }
#endif

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) const {
    constexpr int32_t kNumBlocks = kLanes / kBlockLanes;
    SimdFloat of_block[kNumBlocks];
    for (int32_t block = 0; block < kNumBlocks; ++block) {
      SimdBlock sum = 0.0f;
      for (const int32_t step : StepsOf(tiles...)) {
        sum = sum + f(BlockAt(tiles.steps[step], block * kBlockLanes)...);
      }
      of_block[block] = JoinNeighbours<kBlock>(sum.of, Plus{});
    }
    return SumOfBlocks(of_block);
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
    SimdWeightSum sum(exponent);
    for (const int32_t step : StepsOf(tiles...)) {
      for (int32_t lane = 0; lane < kLanes; lane += kBlockLanes) {
        sum.Add(f(BlockAt(tiles.steps[step], lane)...));
      }
    }
    return sum.Total();
  }

  // A step is summed at once. Only the step in which the prefix passes the threshold is searched
  // one by one.
  template <typename F, typename... Tiles>
  SPECD_INLINE PrefixPlace FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                      const Tiles&... tiles) const {
    const SimdWeights weights(exponent);
    alignas(64) uint64_t of_lane[kLanes];
    uint64_t prefix = 0;
    for (const int32_t step : StepsOf(tiles...)) {
      Uint64Vector sum = hn::Zero(Uint64Tag());
      for (int32_t lane = 0; lane < kLanes; lane += kSimdWidth) {
        Uint64Vector lower, upper;
        weights.Of(f(At(tiles.steps[step], lane)...), &lower, &upper);
        hn::Store(lower, Uint64Tag(), of_lane + lane);
        hn::Store(upper, Uint64Tag(), of_lane + lane + kSimdWidth / 2);
        sum = hn::Add(sum, hn::Add(lower, upper));
      }
      const uint64_t after = prefix + hn::GetLane(hn::SumOfLanes(Uint64Tag(), sum));
      if (after > threshold) {
        int32_t lane = 0;
        for (; prefix + of_lane[lane] <= threshold; ++lane) prefix += of_lane[lane];
        return {.element = step * kLanes + lane, .before = prefix, .weight = of_lane[lane]};
      }
      prefix = after;
    }
    return {};
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE double SumInOrder(const F& f, const Tiles&... tiles) const {
    double sum = 0;
    alignas(64) float values[kSimdWidth];
    const int32_t count = CountOf(tiles...);
    for (int32_t e = 0; e < count; e += kSimdWidth) {
      const SimdFloat x = f(At(tiles.steps[e / kLanes], e % kLanes)...);
      hn::Store(x.raw, FloatTag(), values);
      for (int32_t i = 0; i < kSimdWidth && e + i < count; ++i) {
        sum += static_cast<double>(values[i]);
      }
    }
    return sum;
  }

  template <typename F>
  SPECD_INLINE int32_t FindFirst(const F& f, const Tile& tile) const {
    int32_t first = -1;
    VisitMasks(f, tile, [&](SimdMask found, int32_t element) {
      if (first >= 0) return;
      const intptr_t lane = hn::FindFirstTrue(FloatTag(), found.raw);
      if (lane >= 0) first = element + static_cast<int32_t>(lane);
    });
    return first;
  }

  template <typename F>
  SPECD_INLINE int32_t Pack(const F& f, const Tile& tile, TokenId first_id, float* values,
                            TokenId* ids) const {
    int32_t count = 0;
    VisitMasks(f, tile, [&](SimdMask mask, int32_t e) {
      // Few are packed, and no element after the last one may be written.
      if (NoneOf(mask)) return;
      const auto ids_of = hn::Iota(Int32Tag(), first_id + e);
      const SimdMask packed = FirstLanes(static_cast<int64_t>(hn::CountTrue(FloatTag(), mask.raw)));
      const SimdFloat x = At(tile.steps[e / kLanes], e % kLanes);
      hn::BlendedStore(hn::Compress(x.raw, mask.raw), packed.raw, FloatTag(), values + count);
      const auto int_mask = hn::RebindMask(Int32Tag(), mask.raw);
      hn::BlendedStore(hn::Compress(ids_of, int_mask), hn::RebindMask(Int32Tag(), packed.raw),
                       Int32Tag(), ids + count);
      count += static_cast<int32_t>(hn::CountTrue(FloatTag(), mask.raw));
    });
    return count;
  }

  template <typename F>
  SPECD_INLINE void Store(const F& f, const Tile& tile, int32_t count, float* out) const {
    for (int32_t e = 0; e < count; e += kSimdWidth) {
      const SimdFloat x = f(At(tile.steps[e / kLanes], e % kLanes));
      if (e + kSimdWidth <= count) {
        hn::StoreU(x.raw, FloatTag(), out + e);
      } else {
        hn::BlendedStore(x.raw, FirstLanes(count - e).raw, FloatTag(), out + e);
      }
    }
  }

 private:
  SPECD_INLINE void ApplyWords(const uint32_t* words, int32_t tile_index, Tile* tile) const {
    // Words after the vocabulary do not exist; the elements there are -inf already.
    const auto* bits = reinterpret_cast<const uint8_t*>(words + tile_index * (kTileSize / 32));
    for (const int32_t step : StepsOf(*tile)) {
      const uint8_t* of_step = bits + step * (kLanes / 8);
      const int32_t count = tile->CountOf(step);
      if (count == kLanes && AllBitsOf(of_step)) continue;
      Rewrite(step, count, tile, [&](SimdFloat x, int32_t lane) {
        return Select(SimdMask(hn::LoadMaskBits(FloatTag(), of_step + lane / 8)), x, -kInfinity);
      });
    }
  }

  // Merges kChunk registers of a step into `max`. Returns the lanes that met a NaN.
  template <typename F, typename... Steps>
  SPECD_INLINE static SimdMask Offer(SimdFloat* max, const F& f, int32_t lane,
                                     const Steps*... steps) {
    SimdMask nan = NoLanes();
#pragma GCC unroll 16
    for (int32_t i = 0; i < kChunk; i += 2) {
      const SimdFloat even = f(At(steps, lane + i * kSimdWidth)...);
      const SimdFloat odd = f(At(steps, lane + (i + 1) * kSimdWidth)...);
      max[i] = Larger{}(even, max[i]);
      max[i + 1] = Larger{}(odd, max[i + 1]);
      nan = nan | Unordered(even, odd);
    }
    return nan;
  }

  // Calls visit(mask, first element) for every register of the row's elements; the mask has the
  // lanes whose f is true.
  template <typename F, typename Visit>
  SPECD_INLINE static void VisitMasks(const F& f, const Tile& tile, const Visit& visit) {
    for (const int32_t step : StepsOf(tile)) {
      const int32_t count = tile.CountOf(step);
      const int32_t first = step * kLanes;
      int32_t lane = 0;
      for (; lane + kSimdWidth <= count; lane += kSimdWidth) {
        visit(f(At(tile.steps[step], lane)), first + lane);
      }
      if (lane == count) continue;
      visit(f(At(tile.steps[step], lane)) & FirstLanes(count - lane), first + lane);
    }
  }

  // Whether all bits of a step's mask are set.
  SPECD_INLINE static bool AllBitsOf(const uint8_t* bits) {
    uint64_t words[kLanes / 64];
    __builtin_memcpy(words, bits, sizeof(words));
    return (words[0] & words[1] & words[2] & words[3]) == ~uint64_t{0};
  }

  TeamSeat seat_;
};

}  // namespace HWY_NAMESPACE
}  // namespace specd
