// From a row of logits to a distribution: the maximum and the mass of every tile.
//
// docs/ALGORITHMS.md, "Numbers". p(i) = weight(i) / mass with weight(i) = 2^((l_i - max) * scale)
// and scale = log2(e) / temperature. Nothing of size V is written: weights are computed again where
// they are needed.
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/core/elements.h"

namespace specd {

// A row that has been read once. Valid while the workspace that holds `tiles` is not used again.
struct Distribution {
  RowView row;
  float scale = 0;
  const TileStats* tiles = nullptr;
  bool bad = false;          // a NaN, or no element above -inf (CONTRACT §6); nothing else is set
  TokenId point = kNoToken;  // an element is +inf: all mass is on the lowest such id
  float max = 0;
  double mass = 0;  // the sum of the tiles' masses
};

// 2^((x - max) * scale), the weight of an element relative to a maximum. The product is rounded
// before Exp2 sees it.
struct WeightFunction {
  float max;
  float scale;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Exp2((x - max) * scale);
  }
};

struct Identity {
  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    return x;
  }
};

struct EqualTo {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x == value;
  }
};

// The weights of a tile are relative to its own maximum; this makes its mass relative to the row's.
SPECD_INLINE float TileMass(const TileStats& tile, float max, float scale) {
  return tile.sum * Exp2((tile.max - max) * scale);
}

// The largest tile maximum; NaN if there is a NaN anywhere.
SPECD_INLINE float MaxOfTiles(const TileStats* tiles, int32_t num_tiles) {
  float max = -kInfinity;
  for (int32_t t = 0; t < num_tiles; ++t) {
    if (IsNan(tiles[t].max)) return tiles[t].max;
    if (tiles[t].max > max) max = tiles[t].max;
  }
  return max;
}

// The lowest id whose element equals `value`, which is the largest tile maximum. -0 equals +0.
// kNoToken only if the row changed since its tiles were read.
template <Team T>
SPECD_BODY TokenId LowestIdEqualTo(T& team, const RowView& row, const TileStats* tiles,
                                   float value) {
  int32_t tile_index = 0;
  while (!(tiles[tile_index].max == value)) ++tile_index;
  typename T::Tile tile;
  team.Load(row, tile_index, &tile);
  const int32_t element = team.FindFirst(EqualTo{value}, tile);
  return element < 0 ? kNoToken : tile_index * kTileSize + element;
}

// Reads a row once.
template <Team T>
SPECD_BODY Distribution ReadDistribution(T& team, const RowView& row, float scale,
                                         TileStats* tiles) {
  const int32_t num_tiles = NumTiles(row.vocab_size);
  ForEachTile(team, num_tiles, [&](int32_t t) {
    typename T::Tile tile;
    team.Load(row, t, &tile);
    TileStats stats;
    stats.max = team.Max(Identity{}, tile);
    const bool finite = stats.max - stats.max == 0.0f;
    stats.sum = finite ? team.Sum(WeightFunction{stats.max, scale}, tile) : 0.0f;
    team.Publish(stats, &tiles[t]);
  });

  Distribution result;
  result.row = row;
  result.scale = scale;
  result.tiles = tiles;
  result.max = MaxOfTiles(tiles, num_tiles);
  if (IsNan(result.max) || result.max == -kInfinity) {
    result.bad = true;
    return result;
  }
  if (result.max == kInfinity) {
    result.point = LowestIdEqualTo(team, row, tiles, kInfinity);
    result.mass = 1;
    return result;
  }
  for (int32_t t = 0; t < num_tiles; ++t) {
    result.mass += static_cast<double>(TileMass(tiles[t], result.max, scale));
  }
  return result;
}

// The weight of one id relative to the row's maximum; 0 for ids outside the vocabulary, which are
// never used as an index. REQUIRES: !distribution.bad.
SPECD_INLINE float WeightOf(const Distribution& distribution, TokenId id) {
  if (id < 0 || id >= distribution.row.vocab_size) return 0.0f;
  if (distribution.point != kNoToken) return id == distribution.point ? 1.0f : 0.0f;
  return WeightFunction{distribution.max, distribution.scale}(LoadElement(distribution.row, id));
}

}  // namespace specd
