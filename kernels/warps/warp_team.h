// WarpTeam is a Team of N warps, a CUDA block, for GPUs and their emulation on the host.
//
// A group is a warp of 32 threads. Thread t holds the 8 neighbouring virtual lanes 8t .. 8t+7 of
// tiles.h in registers. The first three levels of the sum tree therefore need no exchange, and the
// other five are shuffles. Thread is the part that differs between a GPU and its emulation
// (kernels/cuda/cuda_thread.cuh; tests/gpu/emulation/emulated_block.h):
//
//   lane()                   0..31, the place in the warp
//   warp(), num_warps()      the warp's place in the block
//   Shuffle(value, source)   the 32-bit value that lane `source` of this warp passes
//   Ballot(predicate)        bit t is lane t's predicate
//   LargestOfWarp(value)     the largest of the lanes' signed values
//   SumOfWarp(value)         the sum of the lanes' 32-bit values, modulo 2^32
//   Sync()                   waits for the whole block; writes before it are seen after it
//
// On a GPU, large primitives that are not used in every pass are functions of their own
// (SPECD_BODY). If they were inlined everywhere, a kernel would have megabytes and take minutes to
// compile. Such a function gets a tile through its thread's local memory.
//
// All 32 threads of a warp must call each Shuffle, Ballot, LargestOfWarp and SumOfWarp together,
// and all threads of the block each Sync. Branches here and in the bodies depend only on values
// that are equal in all of them.
#pragma once

#include <type_traits>

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"
#include "kernels/warps/warp_draws.h"
#include "kernels/warps/warp_load.h"
#include "kernels/warps/warp_mask.h"
#include "kernels/warps/warp_tile.h"

namespace specd {

template <typename Thread>
class WarpTeam : public WarpDraws<Thread> {
  using Lanes = WarpDraws<Thread>;
  using Lanes::ElementAt;
  using Lanes::LargestOfLanes;
  using Lanes::LowestBit;
  using Lanes::PlacesOfSteps;
  using Lanes::ShuffleValue;
  using Lanes::SumOfWarp;
  using Lanes::thread_;

 public:
  using Tile = WarpTile;
  using Lanes::kLanesPerThread;
  using Lanes::kWarpSize;
  using Lanes::SumOfLanes;
  static constexpr bool kReadsInPlace = false;
  using Mask = WarpMask;

  SPECD_INLINE explicit WarpTeam(const Thread& thread) : Lanes(thread) {}

  SPECD_INLINE int32_t group() const { return thread_.warp(); }
  SPECD_INLINE int32_t num_groups() const { return thread_.num_warps(); }
  SPECD_INLINE bool leader() const { return thread_.warp() == 0 && thread_.lane() == 0; }
  SPECD_INLINE void Sync() { thread_.Sync(); }

  SPECD_INLINE float Agree(float value) const { return FloatOf(thread_.Shuffle(BitsOf(value), 0)); }

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    if (thread_.lane() == 0) *where = value;
  }
  template <typename Value, typename F>
  SPECD_INLINE void Replace(Value* where, const F& f) const {
    if (thread_.lane() == 0) *where = f(*where);
  }

  // The elements are fetched by type first, so f is compiled once and not for each type.
  template <typename F>
  SPECD_HOT void Load(const RowView& row, int32_t tile_index, uint32_t steps, const F& f,
                      Tile* tile) const {
    const int32_t rest = row.vocab_size - tile_index * kTileSize;
    tile->count = rest < kTileSize ? rest : kTileSize;
    steps &= Tile::StepsOf(tile->count);
    tile->steps = steps;
    // Not a switch: after an impossible case, the tile would keep its old values.
    if (row.dtype == DType::kFloat32) {
      FetchTile<DType::kFloat32>(row, tile_index, thread_.lane(), steps, tile->values);
    } else if (row.dtype == DType::kBFloat16) {
      FetchTile<DType::kBFloat16>(row, tile_index, thread_.lane(), steps, tile->values);
    } else {
      FetchTile<DType::kFloat16>(row, tile_index, thread_.lane(), steps, tile->values);
    }
    if constexpr (std::is_same_v<F, Identity>) return;
    if constexpr (requires { f.IsIdentity(); }) {
      if (f.IsIdentity()) return;
    }
    Tile::ForEachElement([&](int32_t step, int32_t j) {
      float& x = tile->values[step][j];
      x = Has(*tile, step, j) ? f(x) : -kInfinity;
    });
  }

  // Loads a tile of a row that nothing changes, and requests the next one if it is wanted.
  SPECD_INLINE void LoadWithNext(const RowView& row, int32_t tile_index, bool wants_next,
                                 TileAhead* ahead, Tile* tile) const {
    if (ahead->Has(tile_index)) {
      TakeWords(*ahead, row.dtype, tile);
    } else {
      Load(row, tile_index, kAllSteps, Identity{}, tile);
    }
    if (wants_next) ahead->Fetch(row, tile_index + 1, thread_.lane());
  }

  // Loads tiles of rows that nothing changes into registers, together. Returns false, and loads
  // nothing, if other words than whole ones hold them.
  SPECD_INLINE bool LoadByWord(const RowView& row, int32_t tile_index, Tile* tile) const {
    TileAhead words;
    words.Fetch(row, tile_index, thread_.lane());
    if (!words.Has(tile_index)) return false;
    TakeWords(words, row.dtype, tile);
    return true;
  }
  SPECD_INLINE bool LoadByWord(const RowView& row, const RowView& other, int32_t tile_index,
                               Tile* tile, Tile* other_tile) const {
    TileAhead words;
    TileAhead other_words;
    words.Fetch(row, tile_index, thread_.lane());
    other_words.Fetch(other, tile_index, thread_.lane());
    if (!words.Has(tile_index) || !other_words.Has(tile_index)) return false;
    TakeWords(words, row.dtype, tile);
    TakeWords(other_words, other.dtype, other_tile);
    return true;
  }

  SPECD_INLINE Mask MaskOf(const uint32_t* words, const uint32_t* others, int32_t vocab_size,
                           int32_t tile_index) const {
    return Mask::Of(words, others, vocab_size, tile_index, thread_.lane());
  }
  SPECD_INLINE uint32_t StepsLeft(const Mask& mask) const {
    if (thread_.Ballot(!mask.AllowsAll()) == 0) return kAllSteps;
    uint32_t steps = 0;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      steps |= (thread_.Ballot(mask.AllowsAnyOf(step)) != 0 ? 1u : 0u) << step;
    }
    return steps;
  }
  // Elements after the row's end are -inf already.
  SPECD_INLINE void ApplyMask(const Mask& mask, Tile* tile) const {
    if (mask.AllowsAll()) return;
    Tile::ForEachElement([&](int32_t step, int32_t j) {
      float& x = tile->values[step][j];
      x = mask.Allows(step, j) ? x : -kInfinity;
    });
  }

  // All threads look at all their elements, and the owner writes the element. With a branch, or
  // with an index that the compiler does not know, the tile would leave the registers.
  SPECD_HOT void Set(int32_t element, float value, Tile* tile) const {
    if (element < 0 || element >= tile->count) return;
    const bool mine = (tile->steps >> (element / kLanes) & 1u) != 0 &&
                      element % kLanes / kLanesPerThread == thread_.lane();
    const int32_t place =
        mine ? element / kLanes * kLanesPerThread + element % kLanesPerThread : -1;
    Tile::ForEachElement([&](int32_t step, int32_t j) {
      float& x = tile->values[step][j];
      x = step * kLanesPerThread + j == place ? value : x;
    });
  }

  // The same for a tile that does not lie in registers: the owner writes one element.
  SPECD_INLINE void SetInMemory(int32_t element, float value, Tile* tile) const {
    const bool is_loaded =
        element >= 0 && element < tile->count && Tile::IsIn(tile->steps, element / kLanes);
    if (!is_loaded || element % kLanes / kLanesPerThread != thread_.lane()) return;
    tile->values[element / kLanes][element % kLanesPerThread] = value;
  }

  // Each lane finds one value, so the loads of all lanes overlap.
  template <typename ElementOf, typename ValueOf>
  SPECD_INLINE void SetEach(int32_t i, int32_t end, const ElementOf& element_of,
                            const ValueOf& value_of, Tile* tile) {
    for (; i < end; i += kWarpSize) {
      const int32_t mine = i + thread_.lane();
      const int32_t element = mine < end ? element_of(mine) : kTileSize;
      const bool inside = element < kTileSize;
      const bool loaded = inside && Tile::IsIn(tile->steps, element / kLanes);
      const float value = loaded ? value_of(mine) : 0.0f;
      for (uint32_t rest = thread_.Ballot(loaded); rest != 0; rest &= rest - 1) {
        const int32_t lane = LowestBit(rest);
        Set(ShuffleValue(element, lane), FloatOf(thread_.Shuffle(BitsOf(value), lane)), tile);
      }
      if (thread_.Ballot(inside) != ~0u) return;
    }
  }

  SPECD_INLINE void Keep(float value, int32_t last, Tile* tile) const {
    Tile::ForEachIn(tile->steps, [&](int32_t step, int32_t j) {
      float& x = tile->values[step][j];
      x = x > value || (x == value && ElementAt(step, j) <= last) ? x : -kInfinity;
    });
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) {
    float max = -kInfinity;
    Tile::ForEachIn((tiles.steps | ...), [&](int32_t step, int32_t j) {
      max = LargerOrNan(max, f(tiles.values[step][j]...));
    });
    return LargestOfLanes(max);
  }

  SPECD_HOT float MaxBySteps(const Tile& tile, float* out) {
    float maxima[kStepsPerTile];
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      const auto& x = tile.values[step];
      const float low = LargerOrNan(LargerOrNan(x[0], x[1]), LargerOrNan(x[2], x[3]));
      const float high = LargerOrNan(LargerOrNan(x[4], x[5]), LargerOrNan(x[6], x[7]));
      maxima[step] = LargestOfLanes(LargerOrNan(low, high));
    }
    float largest = maxima[0];
    float mine = maxima[0];
    SPECD_UNROLL
    for (int32_t step = 1; step < kStepsPerTile; ++step) {
      largest = LargerOrNan(largest, maxima[step]);
      mine = thread_.lane() == step ? maxima[step] : mine;
    }
    if (thread_.lane() < kStepsPerTile) out[thread_.lane()] = mine;
    return largest;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) {
    float sum[kLanesPerThread] = {};
    Tile::ForEachElement([&](int32_t step, int32_t j) { sum[j] += f(tiles.values[step][j]...); });
    return SumOfLanes(sum);
  }

  template <typename F>
  SPECD_INLINE int32_t Count(const F& f, const Tile& tile) {
    int32_t count = 0;
    Tile::ForEachIn(tile.steps, [&](int32_t step, int32_t j) {
      count += Has(tile, step, j) && f(tile.values[step][j]) ? 1 : 0;
    });
    return SumOfWarp(count);
  }

  // Each lane in turn adds its terms to the sum of those before it.
  template <typename F, typename... Tiles>
  SPECD_BODY double SumInOrder(const F& f, const Tiles&... tiles) {
    double sum = 0;
    const int32_t count = CountOf(tiles...);
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (step * kLanes >= count) continue;
      double terms[kLanesPerThread];
      SPECD_UNROLL
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        const bool here = ElementAt(step, j) < count;
        terms[j] = here ? static_cast<double>(f(tiles.values[step][j]...)) : 0.0;
      }
      for (int32_t lane = 0; step * kLanes + lane * kLanesPerThread < count && lane < kWarpSize;
           ++lane) {
        SPECD_UNROLL
        for (int32_t j = 0; j < kLanesPerThread; ++j) sum += terms[j];
        sum = ShuffleValue(sum, lane);
      }
    }
    return sum;
  }

  template <typename F>
  SPECD_BODY int32_t FindFirst(const F& f, const Tile& tile) {
    int32_t first = kTileSize;
    Tile::ForEachIn(tile.steps, [&](int32_t step, int32_t j) {
      const int32_t element = ElementAt(step, j);
      const bool here = Has(tile, step, j) && f(tile.values[step][j]);
      first = here && element < first ? element : first;
    });
    first = -thread_.LargestOfWarp(-first);
    return first == kTileSize ? -1 : first;
  }

  template <typename F>
  SPECD_BODY int32_t Pack(const F& f, const Tile& tile, TokenId first_id, float* values,
                          TokenId* ids) {
    uint32_t chosen[kStepsPerTile] = {};
    int32_t places[kStepsPerTile] = {};
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (!Tile::IsIn(tile.steps, step)) continue;
      SPECD_UNROLL
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        const bool here = Has(tile, step, j) && f(tile.values[step][j]);
        chosen[step] |= (here ? 1u : 0u) << j;
        places[step] += here ? 1 : 0;
      }
    }
    const int32_t packed = PlacesOfSteps(places);
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (thread_.Ballot(chosen[step] != 0) == 0) continue;
      for (uint32_t rest = chosen[step]; rest != 0; rest &= rest - 1) {
        const int32_t j = LowestBit(rest);
        values[places[step]] = tile.values[step][j];
        ids[places[step]] = first_id + ElementAt(step, j);
        ++places[step];
      }
    }
    return packed;
  }
  template <typename F>
  SPECD_INLINE void Store(const F& f, const Tile& tile, int32_t count, float* out) const {
    Tile::ForEachElement([&](int32_t step, int32_t j) {
      const int32_t element = ElementAt(step, j);
      if (element < count) out[element] = f(tile.values[step][j]);
    });
  }

 private:
  SPECD_INLINE static void TakeWords(const TileAhead& words, DType dtype, Tile* tile) {
    tile->count = kTileSize;
    tile->steps = kAllSteps;
    words.Take(dtype, tile->values);
  }

  // Whether this is a loaded element of the row.
  SPECD_INLINE bool Has(const Tile& tile, int32_t step, int32_t j) const {
    // No part of this expression is the same for all tiles. The compiler would keep such a part in
    // registers.
    return Tile::IsIn(tile.steps, step) && step * kLanes + j < tile.count - ElementAt(0, 0);
  }

  // Tiles that are read together belong to rows of one vocabulary.
  template <typename... Rest>
  SPECD_INLINE static int32_t CountOf(const Tile& first, const Rest&...) {
    return first.count;
  }
};

}  // namespace specd
