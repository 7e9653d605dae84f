// WarpTile is the part of a tile that one thread of a WarpTeam holds.
//
// The elements stay in registers. Loops over them have constant bounds, so the compiler unrolls
// them; an array with a variable index would leave the registers. If a function gets a tile through
// memory, the alignment lets nvcc move four elements at once.
#pragma once

#include <cstdint>

#include "kernels/bodies/tiles.h"

namespace specd {

struct alignas(16) WarpTile {
  static constexpr int32_t kLanesPerThread = 8;
  static_assert(kLanesPerThread * 32 == kLanes);

  float values[kStepsPerTile][kLanesPerThread];  // [s][j]: element s * 256 + 8 * lane + j
  int32_t count;                                 // elements of the row
  uint32_t steps;                                // the steps that were loaded

  // The steps that hold one of the first `count` elements. REQUIRES: count <= kTileSize.
  SPECD_INLINE static uint32_t StepsOf(int32_t count) {
    return count <= 0 ? 0 : kAllSteps >> (kTileSize - count) / kLanes;
  }
  SPECD_INLINE static bool IsIn(uint32_t steps, int32_t step) { return (steps >> step & 1u) != 0; }

  template <typename Visit>
  SPECD_INLINE static void ForEachElement(const Visit& visit) {
    ForEachIn(kAllSteps, visit);
  }

  // The steps outside are skipped by a branch that all threads of a warp take. A short array has
  // elements in one or two of a tile's steps.
  template <typename Visit>
  SPECD_INLINE static void ForEachIn(uint32_t steps, const Visit& visit) {
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (!IsIn(steps, step)) continue;
      SPECD_UNROLL
      for (int32_t j = 0; j < kLanesPerThread; ++j) visit(step, j);
    }
  }
};

}  // namespace specd
