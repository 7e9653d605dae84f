// ScalarTeam: the plainest team, one group, arrays and loops.
//
// The loops have constant length and no branches, so a compiler turns them into vector instructions
// by itself. kTarget only makes the types of differently compiled files different: each translation
// unit instantiates its own copy of every body, and no function compiled for a newer processor can
// be linked into the path of an older one.
#pragma once

#include <type_traits>

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {

template <CpuTarget kTarget>
class ScalarTeam {
 public:
  // `values` is the row itself where it is fp32 and the tile is full, else `buffer`. Steps wholly
  // beyond the row's end are left out: they would add +0, or offer -inf as a maximum.
  struct Tile {
    const char* values;
    int32_t count;  // elements of the row
    int32_t end;    // the same, rounded up to a multiple of kLanes
    float buffer[kTileSize];

    SPECD_INLINE float At(int32_t element) const {
      return LoadElementAs<DType::kFloat32>(values, element);
    }
  };

  ScalarTeam() = default;
  SPECD_INLINE explicit ScalarTeam(const TeamSeat& seat) : seat_(seat) {}

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
        return Convert<DType::kFloat32>(source, count, f, tile->buffer);
      case DType::kBFloat16:
        return Convert<DType::kBFloat16>(source, count, f, tile->buffer);
      case DType::kFloat16:
        return Convert<DType::kFloat16>(source, count, f, tile->buffer);
    }
  }

  SPECD_INLINE void ApplyMask(const uint32_t* words, int32_t tile_index, Tile* tile) const {
    Own(tile);
    // Words beyond the vocabulary do not exist; elements there are -inf already.
    const uint32_t* first = words + tile_index * (kTileSize / 32);
    for (int32_t e = 0; e < tile->count; ++e) {
      if ((first[e / 32] >> (e % 32) & 1u) == 0) tile->buffer[e] = -kInfinity;
    }
  }

  SPECD_INLINE void Set(int32_t element, float value, Tile* tile) const {
    Own(tile);
    tile->buffer[element] = value;
  }

  SPECD_INLINE void Keep(float value, int32_t last, Tile* tile) const {
    Own(tile);
    for (int32_t e = 0; e < tile->end; ++e) {
      const float x = tile->buffer[e];
      tile->buffer[e] = x > value || (x == value && e <= last) ? x : -kInfinity;
    }
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) const {
    float max[kLanes];
    int32_t nan[kLanes];
    for (int32_t v = 0; v < kLanes; ++v) {
      max[v] = -kInfinity;
      nan[v] = 0;
    }
    for (int32_t e = 0; e < End(tiles...); e += kLanes) {
      for (int32_t v = 0; v < kLanes; ++v) {
        const float x = f(tiles.At(e + v)...);
        max[v] = x > max[v] ? x : max[v];
        nan[v] |= x != x ? 1 : 0;
      }
    }
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t v = 0; v < half; ++v) {
        max[v] = max[v + half] > max[v] ? max[v + half] : max[v];
        nan[v] |= nan[v + half];
      }
    }
    // Which of two zeros was met first depends on the order; the sum with +0 is +0 for both.
    return nan[0] != 0 ? __builtin_nanf("") : max[0] + 0.0f;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) const {
    float sum[kLanes];
    for (int32_t v = 0; v < kLanes; ++v) sum[v] = 0;
    for (int32_t e = 0; e < End(tiles...); e += kLanes) {
      for (int32_t v = 0; v < kLanes; ++v) sum[v] += f(tiles.At(e + v)...);
    }
    // Level k adds lanes v and v xor 2^k. The two of a pair would hold the same sum, so it is kept
    // once: after each level the array is half as long.
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t v = 0; v < half; ++v) sum[v] = sum[2 * v] + sum[2 * v + 1];
    }
    return sum[0];
  }

  template <typename F>
  SPECD_INLINE int32_t Count(const F& f, const Tile& tile) const {
    int32_t count = 0;
    for (int32_t e = 0; e < tile.count; ++e) count += f(tile.At(e)) ? 1 : 0;
    return count;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t SumWeights(const F& f, int32_t exponent, const Tiles&... tiles) const {
    uint64_t sum = 0;
    for (int32_t e = 0; e < End(tiles...); ++e) sum += IntegerWeight(f(tiles.At(e)...), exponent);
    return sum;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE int32_t FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                  const Tiles&... tiles) const {
    uint64_t prefix = 0;
    for (int32_t e = 0; e < End(tiles...); ++e) {
      prefix += IntegerWeight(f(tiles.At(e)...), exponent);
      if (prefix > threshold) return e;
    }
    return -1;
  }

  template <typename F>
  SPECD_INLINE int32_t FindFirst(const F& f, const Tile& tile) const {
    for (int32_t e = 0; e < tile.count; ++e) {
      if (f(tile.At(e))) return e;
    }
    return -1;
  }

  template <typename F>
  SPECD_INLINE int32_t Pack(const F& f, const Tile& tile, TokenId first_id, float* values,
                            TokenId* ids) const {
    int32_t count = 0;
    for (int32_t e = 0; e < tile.count; ++e) {
      if (!f(tile.At(e))) continue;
      values[count] = tile.At(e);
      ids[count] = first_id + e;
      ++count;
    }
    return count;
  }

  template <typename F>
  SPECD_INLINE void Store(const F& f, const Tile& tile, int32_t count, float* out) const {
    for (int32_t e = 0; e < count; ++e) out[e] = f(tile.At(e));
  }

 private:
  // Before a tile is written it must not be the row itself any more.
  SPECD_INLINE static void Own(Tile* tile) {
    const char* buffer = reinterpret_cast<const char*>(tile->buffer);
    if (tile->values == buffer) return;
    __builtin_memcpy(tile->buffer, tile->values, sizeof(tile->buffer));
    tile->values = buffer;
  }

  // Tiles that are read together are of rows of one vocabulary.
  template <typename... Rest>
  SPECD_INLINE static int32_t End(const Tile& first, const Rest&...) {
    return first.end;
  }

  template <DType kDType, typename F>
  SPECD_INLINE static void Convert(const char* source, int32_t count, const F& f, float* buffer) {
    if (count == kTileSize) {
      for (int32_t e = 0; e < kTileSize; ++e) buffer[e] = f(LoadElementAs<kDType>(source, e));
      return;
    }
    for (int32_t e = 0; e < count; ++e) buffer[e] = f(LoadElementAs<kDType>(source, e));
    for (int32_t e = count; e % kLanes != 0; ++e) buffer[e] = -kInfinity;
  }

  TeamSeat seat_;
};

}  // namespace specd
