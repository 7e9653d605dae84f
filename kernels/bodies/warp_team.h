// WarpTeam: a CUDA block of N warps as a Team, written over the few things a thread can ask its
// warp.
//
// A group is a warp of 32 threads. Thread t owns the 8 neighbouring virtual lanes 8t .. 8t+7 of
// tiles.h in registers, so the first three levels of the sum tree need no exchange and the other
// five are shuffles. Thread is the part that differs between a GPU and its emulation on the host
// (kernels/cuda/cuda_thread.cuh; tests/support/emulated_block.h):
//
//   lane()                   0..31, the place in the warp
//   warp(), num_warps()      the warp's place in the block
//   Shuffle(value, source)   the 32-bit value that lane `source` of this warp passes
//   Ballot(predicate)        bit t is lane t's predicate
//   Sync()                   waits for the whole block; writes before it are seen after it
//
// All 32 threads of a warp must reach each Shuffle and Ballot together, and all threads of the
// block each Sync. Branches here and in the bodies depend only on values that are equal in all of
// them.
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"

namespace specd {

template <typename Thread>
class WarpTeam {
 public:
  static constexpr int32_t kWarpSize = 32;
  static constexpr int32_t kLanesPerThread = kLanes / kWarpSize;

  // This thread's elements: [step][j] is element step * 256 + 8 * lane + j of the tile.
  struct Tile {
    float values[kStepsPerTile][kLanesPerThread];
  };

  SPECD_INLINE explicit WarpTeam(const Thread& thread) : thread_(thread) {}

  SPECD_INLINE int32_t group() const { return thread_.warp(); }
  SPECD_INLINE int32_t num_groups() const { return thread_.num_warps(); }
  SPECD_INLINE bool leader() const { return thread_.warp() == 0 && thread_.lane() == 0; }
  SPECD_INLINE void Sync() { thread_.Sync(); }

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    if (thread_.lane() == 0) *where = value;
  }

  SPECD_INLINE void Load(const RowView& row, int32_t tile_index, Tile* tile) const {
    switch (row.dtype) {
      case DType::kFloat32:
        return LoadAs<DType::kFloat32>(row, tile_index, tile);
      case DType::kBFloat16:
        return LoadAs<DType::kBFloat16>(row, tile_index, tile);
      case DType::kFloat16:
        return LoadAs<DType::kFloat16>(row, tile_index, tile);
    }
  }

  // Written as a select over all registers: an array with a variable index would leave them.
  SPECD_INLINE void Remove(int32_t element, Tile* tile) const {
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        if (ElementAt(step, j) == element) tile->values[step][j] = -kInfinity;
      }
    }
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) {
    float max = -kInfinity;
    bool nan = false;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        const float x = f(tiles.values[step][j]...);
        max = x > max ? x : max;
        nan = nan || IsNan(x);
      }
    }
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2) {
      const float other = ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    return thread_.Ballot(nan) != 0 ? FloatOf(0x7FC00000u) : max;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) {
    float sum[kLanesPerThread] = {};
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      for (int32_t j = 0; j < kLanesPerThread; ++j) sum[j] += f(tiles.values[step][j]...);
    }
    float total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2) total += ShuffleXor(total, mask);
    return total;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t SumWeights(const F& f, int32_t exponent, const Tiles&... tiles) {
    uint64_t sum = 0;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      sum += StepWeight(f, exponent, step, tiles...);
    }
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2)
      sum += Shuffle64(sum, thread_.lane() ^ mask);
    return sum;
  }

  // Element order is step, then lane, then j: the prefix goes step by step, and inside a step by a
  // scan over the lanes.
  template <typename F, typename... Tiles>
  SPECD_INLINE int32_t FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                  const Tiles&... tiles) {
    uint64_t before = 0;  // of all earlier steps
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      const uint64_t mine = StepWeight(f, exponent, step, tiles...);
      const uint64_t prefix = before + InclusiveScan(mine);
      const uint32_t above = thread_.Ballot(prefix > threshold);
      if (above != 0) {
        int32_t element = -1;
        uint64_t running = prefix - mine;
        for (int32_t j = 0; j < kLanesPerThread; ++j) {
          running += IntegerWeight(f(tiles.values[step][j]...), exponent);
          if (element < 0 && running > threshold) element = ElementAt(step, j);
        }
        return ShuffleInt(element, LowestBit(above));
      }
      before = Shuffle64(prefix, kWarpSize - 1);
    }
    return -1;
  }

  template <typename F>
  SPECD_INLINE int32_t FindFirst(const F& f, const Tile& tile) {
    int32_t first = kTileSize;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        const int32_t element = ElementAt(step, j);
        first = f(tile.values[step][j]) && element < first ? element : first;
      }
    }
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2) {
      const int32_t other = ShuffleInt(first, thread_.lane() ^ mask);
      first = other < first ? other : first;
    }
    return first == kTileSize ? -1 : first;
  }

 private:
  template <DType kDType>
  SPECD_INLINE void LoadAs(const RowView& row, int32_t tile_index, Tile* tile) const {
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        const int32_t id = tile_index * kTileSize + ElementAt(step, j);
        tile->values[step][j] =
            id < row.vocab_size ? LoadElementAs<kDType>(row.data, id) : -kInfinity;
      }
    }
  }

  SPECD_INLINE int32_t ElementAt(int32_t step, int32_t j) const {
    return step * kLanes + thread_.lane() * kLanesPerThread + j;
  }

  // The weight of this thread's 8 elements of one step.
  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t StepWeight(const F& f, int32_t exponent, int32_t step,
                                   const Tiles&... tiles) const {
    uint64_t sum = 0;
    for (int32_t j = 0; j < kLanesPerThread; ++j) {
      sum += IntegerWeight(f(tiles.values[step][j]...), exponent);
    }
    return sum;
  }

  SPECD_INLINE uint64_t InclusiveScan(uint64_t value) {
    for (int32_t distance = 1; distance < kWarpSize; distance *= 2) {
      const int32_t source = thread_.lane() - distance;
      const uint64_t other = Shuffle64(value, source < 0 ? thread_.lane() : source);
      value += source < 0 ? 0 : other;
    }
    return value;
  }

  SPECD_INLINE float ShuffleXor(float value, int32_t mask) {
    return FloatOf(thread_.Shuffle(BitsOf(value), thread_.lane() ^ mask));
  }
  SPECD_INLINE int32_t ShuffleInt(int32_t value, int32_t source) {
    return static_cast<int32_t>(thread_.Shuffle(static_cast<uint32_t>(value), source));
  }
  SPECD_INLINE uint64_t Shuffle64(uint64_t value, int32_t source) {
    const uint64_t high = thread_.Shuffle(static_cast<uint32_t>(value >> 32), source);
    const uint64_t low = thread_.Shuffle(static_cast<uint32_t>(value), source);
    return (high << 32) | low;
  }

  SPECD_INLINE static int32_t LowestBit(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(bits)) - 1;
#else
    return __builtin_ctz(bits);
#endif
  }

  Thread thread_;
};

}  // namespace specd
