// Reading ahead: which rows of a task may be read before anything about it is decided, and where
// what their first passes leave is kept.
//
// A CPU reads a row when the decision comes to it. On a GPU that would leave one warp alone with
// one row after another; so warps share the tiles of all rows that a round may need, and whoever
// is last with a row judges it (fused_round.h). Rows have slots, in the order of places. Pure
// functions.
#pragma once

#include "kernels/bodies/tiles.h"
#include "kernels/core/fused_round.h"
#include "kernels/core/round.h"

namespace specd {

SPECD_INLINE constexpr int32_t TargetSlot(int32_t place) { return 2 * place; }
SPECD_INLINE constexpr int32_t DraftSlot(int32_t place) { return 2 * place + 1; }
SPECD_INLINE constexpr int32_t PlaceOfSlot(int32_t slot) { return slot / 2; }
SPECD_INLINE constexpr bool IsTargetSlot(int32_t slot) { return slot % 2 == 0; }
SPECD_INLINE constexpr int32_t NumSlots(int32_t max_draft) { return 2 * max_draft + 1; }

// Not the rows that the decision cannot come to, and not those that it does not read as a
// distribution or for their argmax. Of a task whose draft tokens are not known yet: all that it may
// turn out to need.
SPECD_INLINE bool IsReadAhead(const ChainTask& task, int32_t slot) {
  const DraftChain& chain = task.chain;
  const int32_t place = PlaceOfSlot(slot);
  const int32_t num_places = task.kind == TaskKind::kSampleDraft ? 1 : chain.num_drafts + 1;
  if (task.kind == TaskKind::kScore || place >= num_places || chain.target_argmax != nullptr) {
    return false;
  }
  const bool forced = task.places != nullptr && task.places[place].forced != kNoToken;
  if (task.kind == TaskKind::kSampleDraft) return IsTargetSlot(slot) && !forced;
  for (int32_t i = 0; chain.tokens != nullptr && i < place; ++i) {
    if (chain.tokens[i] == kNoToken) return false;
  }
  if (IsTargetSlot(slot)) return !forced;
  if (task.method != VerifyMethod::kToken && task.method != VerifyMethod::kBlock) return false;
  if (place == chain.num_drafts) return false;
  if (chain.tokens != nullptr && chain.tokens[place] == kNoToken) return false;
  const bool sampled = chain.kinds != nullptr && chain.kinds[place] == DraftKind::kSampled;
  return sampled && chain.draft_weights == nullptr && !(task.draft_edits && forced);
}

// The bytes that the passes over a task's rows leave, and where those of one row lie.
SPECD_INLINE int64_t AheadSlotBytes(int32_t vocab_size) {
  const int64_t words = int64_t{NumTiles(vocab_size)} * (2 + kStepsPerTile) +
                        2 * int64_t{kNarrowListMax} + kNarrowStepsMax;
  return int64_t{sizeof(AheadFacts)} + (words * 4 + 15) / 16 * 16;
}
SPECD_INLINE int64_t AheadBytes(int32_t vocab_size, int32_t max_draft) {
  return NumSlots(max_draft) * AheadSlotBytes(vocab_size);
}
SPECD_INLINE AheadRead AheadAt(char* ahead, int32_t slot, int32_t vocab_size) {
  const int64_t num_tiles = NumTiles(vocab_size);
  AheadRead read;
  read.facts = reinterpret_cast<AheadFacts*>(ahead + slot * AheadSlotBytes(vocab_size));
  read.stats.maxima = reinterpret_cast<float*>(read.facts + 1);
  read.stats.sums = read.stats.maxima + num_tiles;
  read.stats.peaks = read.stats.sums + num_tiles;
  read.list.elements.values = read.stats.peaks + num_tiles * kStepsPerTile;
  read.list.elements.ids = reinterpret_cast<TokenId*>(read.list.elements.values + kNarrowListMax);
  read.list.steps = read.list.elements.ids + kNarrowListMax;
  return read;
}

}  // namespace specd
