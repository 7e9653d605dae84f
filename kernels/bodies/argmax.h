// Argmax of a row: the greedy token, the lowest id among equals. The shortest pass: it reads every
// element once and computes no exp2.
#pragma once

#include "kernels/bodies/distribution.h"

namespace specd {

// The lowest id among the largest elements (-0 = +0; +inf is an element like any other), or
// kNoToken for a bad row: one with a NaN, or with no element above -inf.
template <Team T>
SPECD_BODY TokenId Argmax(T& team, const RowView& row, TileStats* tiles) {
  const int32_t num_tiles = NumTiles(row.vocab_size);
  ForEachTile(team, num_tiles, [&](int32_t t) {
    typename T::Tile tile;
    team.Load(row, t, &tile);
    team.Publish(TileStats{team.Max(Identity{}, tile), 0.0f}, &tiles[t]);
  });
  const float max = MaxOfTiles(tiles, num_tiles);
  if (IsNan(max) || max == -kInfinity) return kNoToken;
  return LowestIdEqualTo(team, row, tiles, max);
}

}  // namespace specd
