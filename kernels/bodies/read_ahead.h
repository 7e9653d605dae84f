// IsReadAhead and AheadAt say which rows of a task are read before its decision, and keep the
// results of their first passes for the teams.
//
// A CPU reads a row when the decision comes to it. On a GPU, one warp would then read one row after
// another alone. Warps therefore share the tiles of all rows that a round may need. The warp that
// completes a row judges it (fused_round.h). The rows of a task are numbered in the order of
// places; such a number is a task row. Pure functions.
#pragma once

#include "kernels/bodies/tiles.h"
#include "kernels/core/fused_round.h"
#include "kernels/core/round.h"

namespace specd {

SPECD_INLINE constexpr int32_t TargetTaskRow(int32_t place) { return 2 * place; }
SPECD_INLINE constexpr int32_t DraftTaskRow(int32_t node) { return 2 * node + 1; }
SPECD_INLINE constexpr bool IsTargetRow(int32_t task_row) { return task_row % 2 == 0; }
// The place of a target row, or the node of a draft row.
SPECD_INLINE constexpr int32_t IndexOfTaskRow(int32_t task_row) { return task_row / 2; }
// The place that a task row decides.
SPECD_INLINE int32_t PlaceOfTaskRow(const Draft& draft, int32_t task_row) {
  return IsTargetRow(task_row) ? IndexOfTaskRow(task_row)
                               : PlaceOf(draft, IndexOfTaskRow(task_row));
}
SPECD_INLINE constexpr int32_t NumTaskRows(int32_t max_draft) { return 2 * max_draft + 1; }

// Whether the row is read ahead. A row behind a -1 is not, because no decision comes to it; one
// behind another id outside the vocabulary is read in vain. A row that the decision does not read
// at all is not read ahead either. If the task's draft tokens are not known yet, every row that the
// task may need is read ahead. Draft rows of a tree by slot are not, because only its parents tell
// which of them a node has.
SPECD_INLINE bool IsReadAhead(const Task& task, int32_t task_row) {
  const Draft& draft = task.draft;
  const int32_t index = IndexOfTaskRow(task_row);
  const int32_t num_places = task.kind == TaskKind::kSampleDraft ? 1 : draft.num_nodes + 1;
  if (task.kind == TaskKind::kScore || index >= num_places || draft.target_argmax != nullptr) {
    return false;
  }
  if (!IsTargetRow(task_row) && (index == draft.num_nodes || task.parents_by_slot)) return false;
  const int32_t place = PlaceOfTaskRow(draft, task_row);
  const bool forced = task.places != nullptr && task.places[place].forced != kNoToken;
  if (task.kind == TaskKind::kSampleDraft) return IsTargetRow(task_row) && !forced;
  if (draft.tokens != nullptr) {
    bool is_behind = false;  // no branch on a token, so the loads of a chain overlap
    for (int32_t i = NodeBefore(place); i != kRoot; i = ParentOf(draft, i)) {
      is_behind |= draft.tokens[i] == kNoToken;
    }
    if (is_behind) return false;
  }
  if (IsTargetRow(task_row)) return !forced;
  if (!ReadsDraftRows(task.method)) return false;
  if (draft.tokens != nullptr && draft.tokens[index] == kNoToken) return false;
  return IsDrawn(draft, index) && draft.draft_weights == nullptr && !(task.draft_edits && forced);
}

// The size of the results that passes leave for a task's rows, and the layout for one row.
SPECD_INLINE int64_t AheadRowBytes(int32_t vocab_size) {
  const int64_t words = int64_t{NumTiles(vocab_size)} * (2 + kStepsPerTile) +
                        2 * int64_t{kNarrowListMax} + kNarrowStepsMax;
  return int64_t{sizeof(AheadFacts)} + (words * 4 + 15) / 16 * 16;
}
SPECD_INLINE int64_t AheadBytes(int32_t vocab_size, int32_t max_draft) {
  return NumTaskRows(max_draft) * AheadRowBytes(vocab_size);
}
SPECD_INLINE AheadRead AheadAt(char* ahead, int32_t task_row, int32_t vocab_size) {
  const int64_t num_tiles = NumTiles(vocab_size);
  AheadRead read;
  read.facts = reinterpret_cast<AheadFacts*>(ahead + task_row * AheadRowBytes(vocab_size));
  read.stats.maxima = reinterpret_cast<float*>(read.facts + 1);
  read.stats.sums = read.stats.maxima + num_tiles;
  read.stats.peaks = read.stats.sums + num_tiles;
  read.list.elements.values = read.stats.peaks + num_tiles * kStepsPerTile;
  read.list.elements.ids = reinterpret_cast<TokenId*>(read.list.elements.values + kNarrowListMax);
  read.list.steps = read.list.elements.ids + kNarrowListMax;
  return read;
}

}  // namespace specd
