// WarpMask holds the mask bits of one thread's elements of a tile for WarpTeam, one bit for each
// element.
//
// The mask is made before the tile is fetched, so fully masked steps need not be fetched. The mask
// is small and stays in registers next to the tile. Pure functions of their arguments.
#pragma once

#include <cstdint>

#include "kernels/bodies/tiles.h"
#include "kernels/core/types.h"

namespace specd {

struct WarpMask {
  // Bit 8 (s % 4) + j of word s / 4 belongs to element [s][j].
  uint32_t words[2] = {~0u, ~0u};
  static_assert(kStepsPerTile == 2 * 4);

  // The bits of two rows of a MaskView, or null, for thread `lane`. The thread's 8 elements of one
  // step have their bits in one byte of one word. Words after the vocabulary do not exist.
  SPECD_INLINE static WarpMask Of(const uint32_t* words, const uint32_t* others, int32_t vocab_size,
                                  int32_t tile_index, int32_t lane) {
    WarpMask mask;
    if (words == nullptr && others == nullptr) return mask;
    mask.words[0] = mask.words[1] = 0;
    const TokenId first = tile_index * kTileSize + 8 * lane;
    const int32_t word_of_first = first / 32;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (step * kLanes >= vocab_size - first) continue;
      const int32_t word = word_of_first + step * (kLanes / 32);
      uint32_t allowed = words == nullptr ? ~0u : words[word];
      allowed &= others == nullptr ? ~0u : others[word];
      mask.words[step / 4] |= (allowed >> (first % 32) & 0xFFu) << (8 * (step % 4));
    }
    return mask;
  }

  SPECD_INLINE bool AllowsAll() const { return (words[0] & words[1]) == ~0u; }
  SPECD_INLINE bool AllowsAnyOf(int32_t step) const {
    return (words[step / 4] >> (8 * (step % 4)) & 0xFFu) != 0;
  }
  SPECD_INLINE bool Allows(int32_t step, int32_t j) const {
    return (words[step / 4] >> (8 * (step % 4) + j) & 1u) != 0;
  }
};

}  // namespace specd
