// ListFrom lists the elements of a row that are not below a floor, for a team of one warp
// (warp_team.h).
//
// Use it when the warp has completed a row that was read ahead and knows every step's peak. The
// warp reads only the steps whose peak reaches the floor, and only a few of them. It fetches the
// steps of a plain row a whole tile at a time, wherever they lie. The warp therefore waits for
// memory only a few times.
#pragma once

#include "kernels/bodies/cut_functions.h"
#include "kernels/bodies/distribution.h"

namespace specd {

// Lists the steps whose peak is not below `floor`. Returns -1 if there are too many.
template <Team T>
SPECD_BODY int32_t ListSteps(T& team, const Distribution& p, float floor, const NarrowList& list) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  const RowView peaks{p.stats.peaks, DType::kFloat32, num_tiles * kStepsPerTile, {}};
  const AtLeast function{floor};
  typename T::Tile tile;
  int32_t num_steps = 0;
  for (int32_t t = 0; t < NumTiles(peaks.vocab_size); ++t) {
    team.Load(peaks, t, kAllSteps, Identity{}, &tile);
    const int32_t more = team.Count(function, tile);
    if (num_steps + more > kNarrowStepsMax) return -1;
    // The values are not used. Elements overwrite them later.
    team.Pack(function, tile, t * kTileSize, list.elements.values + num_steps,
              list.steps + num_steps);
    num_steps += more;
  }
  team.Sync();
  return num_steps;
}
static_assert(kNarrowStepsMax <= kNarrowListMax);

// Lists elements in ascending order of ids. Returns -1 if there are too many elements or steps.
// REQUIRES: the team is one group.
template <Team T>
SPECD_BODY int32_t ListFrom(T& team, const Distribution& p, float floor, const NarrowList& list) {
  if (list.steps == nullptr) return -1;
  team.Sync();
  const int32_t num_steps = ListSteps(team, p, floor, list);
  const bool plain = IsReadAsItLies(p.row);
  const AtLeast function{floor};
  typename T::Tile tile;
  int32_t num_listed = 0;
  int32_t end = 0;
  for (int32_t begin = 0; begin < num_steps; begin = end) {
    const int32_t* const numbers = list.steps + begin;
    const int32_t tile_index = numbers[0] / kStepsPerTile;
    if (plain) {
      end = begin + kStepsPerTile < num_steps ? begin + kStepsPerTile : num_steps;
      team.LoadSteps(p.row.view, numbers, end - begin, &tile);
    } else {
      // Rows with edits are listed tile by tile.
      uint32_t steps = 0;
      for (end = begin; end < num_steps && list.steps[end] / kStepsPerTile == tile_index; ++end) {
        steps |= 1u << (list.steps[end] % kStepsPerTile);
      }
      LoadRow(team, p.row, tile_index, steps, &tile);
    }
    const int32_t more = team.Count(function, tile);
    if (num_listed + more > kNarrowListMax) return -1;
    float* const values = list.elements.values + num_listed;
    TokenId* const ids = list.elements.ids + num_listed;
    if (plain) {
      team.PackSteps(function, tile, numbers, values, ids);
    } else {
      team.Pack(function, tile, tile_index * kTileSize, values, ids);
    }
    num_listed += more;
  }
  team.Sync();
  return num_steps < 0 ? -1 : num_listed;
}

}  // namespace specd
