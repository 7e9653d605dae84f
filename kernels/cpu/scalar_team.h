// ScalarTeam: the plainest team, one group, arrays and loops.
//
// The loops have constant length and no branches, so a compiler turns them into vector instructions
// by itself. kTarget only makes the types of differently compiled files different: each translation
// unit instantiates its own copy of every body, and no function compiled for a newer processor can
// be linked into the path of an older one.
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"

namespace specd {

// The instruction sets that the CPU bodies are compiled for.
enum class CpuTarget { kBaseline, kAvx2 };

template <CpuTarget kTarget>
class ScalarTeam {
 public:
  // `values` is the row itself where it is fp32 and the tile is full, else `buffer`. Steps wholly
  // beyond the row's end are left out: they would add +0, or offer -inf as a maximum.
  struct Tile {
    const char* values;
    int32_t end;  // a multiple of kLanes
    float buffer[kTileSize];

    SPECD_INLINE float At(int32_t element) const {
      return LoadElementAs<DType::kFloat32>(values, element);
    }
  };

  SPECD_INLINE int32_t group() const { return 0; }
  SPECD_INLINE int32_t num_groups() const { return 1; }
  SPECD_INLINE bool leader() const { return true; }
  SPECD_INLINE void Sync() {}

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    *where = value;
  }

  SPECD_INLINE void Load(const RowView& row, int32_t tile_index, Tile* tile) const {
    const int32_t first = tile_index * kTileSize;
    const int32_t rest = row.vocab_size - first;
    const int32_t count = rest < kTileSize ? rest : kTileSize;
    const char* source = static_cast<const char*>(row.data) + first * SizeBytes(row.dtype);
    tile->values = reinterpret_cast<const char*>(tile->buffer);
    tile->end = (count + kLanes - 1) / kLanes * kLanes;
    switch (row.dtype) {
      case DType::kFloat32:
        if (count == kTileSize) {
          tile->values = source;
          return;
        }
        return Convert<DType::kFloat32>(source, count, tile->buffer);
      case DType::kBFloat16:
        return Convert<DType::kBFloat16>(source, count, tile->buffer);
      case DType::kFloat16:
        return Convert<DType::kFloat16>(source, count, tile->buffer);
    }
  }

  SPECD_INLINE void Remove(int32_t element, Tile* tile) const {
    const char* buffer = reinterpret_cast<const char*>(tile->buffer);
    if (tile->values != buffer) {
      __builtin_memcpy(tile->buffer, tile->values, sizeof(tile->buffer));
      tile->values = buffer;
    }
    tile->buffer[element] = -kInfinity;
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
    return nan[0] != 0 ? __builtin_nanf("") : max[0];
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
    for (int32_t e = 0; e < tile.end; ++e) {
      if (f(tile.At(e))) return e;
    }
    return -1;
  }

 private:
  // Tiles that are read together are of rows of one vocabulary.
  template <typename... Rest>
  SPECD_INLINE static int32_t End(const Tile& first, const Rest&...) {
    return first.end;
  }

  template <DType kDType>
  SPECD_INLINE static void Convert(const char* source, int32_t count, float* buffer) {
    if (count == kTileSize) {
      for (int32_t e = 0; e < kTileSize; ++e) buffer[e] = LoadElementAs<kDType>(source, e);
      return;
    }
    for (int32_t e = 0; e < count; ++e) buffer[e] = LoadElementAs<kDType>(source, e);
    for (int32_t e = count; e % kLanes != 0; ++e) buffer[e] = -kInfinity;
  }
};

}  // namespace specd
