// WarpMask holds the mask bits of one thread's elements of a tile for WarpTeam, one bit for each
// element.
//
// The mask is made before the tile is fetched, so fully masked steps need not be fetched. The mask
// is small and stays in registers next to the tile. A mask also says which elements of any eight
// steps a list takes (warp_lists.h). Pure functions of their arguments.
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
    const auto number_of = [&](int32_t step) { return tile_index * kStepsPerTile + step; };
    return OfSteps(words, others, vocab_size, number_of, lane);
  }
  // The same for the steps number_of(0..7) of the row.
  template <typename NumberOf>
  SPECD_INLINE static WarpMask OfSteps(const uint32_t* words, const uint32_t* others,
                                       int32_t vocab_size, const NumberOf& number_of,
                                       int32_t lane) {
    WarpMask mask;
    SPECD_NO_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const uint32_t* const row = i == 0 ? words : others;
      if (row != nullptr) mask.ForbidAllBut(OfRow(row, vocab_size, number_of, lane));
    }
    return mask;
  }

  SPECD_INLINE bool AllowsAll() const { return (words[0] & words[1]) == ~0u; }
  // Bit j: element [step][j].
  SPECD_INLINE uint32_t OfStep(int32_t step) const {
    return words[step / 4] >> (8 * (step % 4)) & 0xFFu;
  }
  SPECD_INLINE bool AllowsAnyOf(int32_t step) const { return OfStep(step) != 0; }
  SPECD_INLINE bool Allows(int32_t step, int32_t j) const {
    return (words[step / 4] >> (8 * (step % 4) + j) & 1u) != 0;
  }
  // Sets or clears bits of a step. A word with a variable index would leave the registers.
  SPECD_INLINE void Allow(int32_t step, uint32_t bits) {
    words[0] |= step < 4 ? bits << (8 * (step % 4)) : 0;
    words[1] |= step < 4 ? 0 : bits << (8 * (step % 4));
  }
  SPECD_INLINE void Forbid(int32_t step, uint32_t bits) {
    words[0] &= ~(step < 4 ? bits << (8 * (step % 4)) : 0);
    words[1] &= ~(step < 4 ? 0 : bits << (8 * (step % 4)));
  }
  SPECD_INLINE void ForbidAllBut(const WarpMask& other) {
    words[0] &= other.words[0];
    words[1] &= other.words[1];
  }

 private:
  // No load depends on a branch, so all are requested before the first is waited for. Bits of
  // elements after the row's end may be anything.
  template <typename NumberOf>
  SPECD_INLINE static WarpMask OfRow(const uint32_t* row, int32_t vocab_size,
                                     const NumberOf& number_of, int32_t lane) {
    const int32_t last = (vocab_size - 1) / 32;
    WarpMask mask{{0, 0}};
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      const int32_t word = (number_of(step) * kLanes + 8 * lane) / 32;
      const uint32_t allowed = row[word < last ? word : last];
      mask.words[step / 4] |= (allowed >> (8 * lane % 32) & 0xFFu) << (8 * (step % 4));
    }
    return mask;
  }
};

}  // namespace specd
