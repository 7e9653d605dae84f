// LoneLane makes a CPU thread the Thread of bodies that use the lanes of a warp: a warp of one
// lane, the only one of its launch.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

struct LoneLane {
  SPECD_INLINE int32_t lane() const { return 0; }
  SPECD_INLINE int32_t warp() const { return 0; }
  SPECD_INLINE int32_t num_warps() const { return 1; }
  SPECD_INLINE int32_t block() const { return 0; }
  SPECD_INLINE int32_t num_blocks() const { return 1; }
  SPECD_INLINE void SyncWarp() const {}
  template <typename Word>
  SPECD_INLINE void Note(Word value, Word* word) const {
    *word = value;
  }
};

}  // namespace specd
