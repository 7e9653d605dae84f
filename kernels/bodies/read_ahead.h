// Reading ahead: which rows of a task may be read before anything about it is decided, and where
// what their first passes leave is kept.
//
// A CPU reads a row when the decision comes to it. On a GPU that would leave one block alone with
// one row after another; so blocks share the tiles of all rows that a round may need, and whoever
// is last with a task's rows decides it (fused_round.h). Rows have slots, in the order of places.
// Pure functions.
#pragma once

#include "kernels/bodies/tiles.h"
#include "kernels/core/fused_round.h"
#include "kernels/core/round.h"

namespace specd {

SPECD_INLINE constexpr int32_t TargetSlot(int32_t place) { return 2 * place; }
SPECD_INLINE constexpr int32_t DraftSlot(int32_t place) { return 2 * place + 1; }
SPECD_INLINE constexpr int32_t PlaceOfSlot(int32_t slot) { return slot / 2; }
SPECD_INLINE constexpr int32_t NumSlots(int32_t max_draft) { return 2 * max_draft + 1; }

// Not the rows that the decision cannot come to, and not those that it does not read as a
// distribution or for their argmax.
SPECD_INLINE bool IsReadAhead(const ChainTask& task, int32_t slot) {
  const DraftChain& chain = task.chain;
  const int32_t place = PlaceOfSlot(slot);
  const bool is_target = slot == TargetSlot(place);
  const int32_t num_places = task.kind == TaskKind::kSampleDraft ? 1 : chain.num_drafts + 1;
  if (task.kind == TaskKind::kScore || place >= num_places || chain.target_argmax != nullptr) {
    return false;
  }
  const bool forced = task.places != nullptr && task.places[place].forced != kNoToken;
  if (task.kind == TaskKind::kSampleDraft) return is_target && !forced;
  for (int32_t i = 0; i < place; ++i) {
    if (chain.tokens[i] == kNoToken) return false;
  }
  if (is_target) return !forced;
  if (task.method != VerifyMethod::kToken && task.method != VerifyMethod::kBlock) return false;
  if (place == chain.num_drafts || chain.tokens[place] == kNoToken) return false;
  const bool sampled = chain.kinds != nullptr && chain.kinds[place] == DraftKind::kSampled;
  return sampled && chain.draft_weights == nullptr && !(task.draft_edits && forced);
}

// Lists the rows of all tasks that are read ahead, in order of place, and a task without any once.
// Returns how many there are: NumSlots for each task at most.
inline int32_t ListRowsAhead(const ChainTask* tasks, int32_t num_tasks, int32_t max_draft,
                             AheadRow* rows) {
  const int32_t num_slots = NumSlots(max_draft);
  int32_t num_rows = 0;
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    for (int32_t i = 0; i < num_tasks; ++i) {
      int32_t of_task = 0;
      for (int32_t s = 0; s < num_slots; ++s) of_task += IsReadAhead(tasks[i], s) ? 1 : 0;
      if (IsReadAhead(tasks[i], slot)) {
        rows[num_rows++] = {.task = i, .slot = slot, .num_rows = of_task};
      } else if (slot == 0 && of_task == 0) {
        rows[num_rows++] = {.task = i, .slot = -1, .num_rows = 1};
      }
    }
  }
  return num_rows;
}

// The bytes that the passes over a task's rows leave, and where those of one row lie.
SPECD_INLINE int64_t AheadBytes(int32_t vocab_size, int32_t max_draft) {
  return int64_t{NumSlots(max_draft)} * NumTiles(vocab_size) * (2 + kStepsPerTile) *
         int64_t{sizeof(float)};
}
SPECD_INLINE RowStats AheadStats(float* ahead, int32_t slot, int32_t vocab_size) {
  const int64_t num_tiles = NumTiles(vocab_size);
  RowStats stats;
  stats.maxima = ahead + slot * num_tiles * (2 + kStepsPerTile);
  stats.sums = stats.maxima + num_tiles;
  stats.peaks = stats.sums + num_tiles;
  return stats;
}

}  // namespace specd
