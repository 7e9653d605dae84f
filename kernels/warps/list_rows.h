// ListRowsAhead lists the rows that a round reads ahead, for the host's part of fused_round.h. It
// also says which tasks are decided at once.
#pragma once

#include <algorithm>

#include "kernels/bodies/read_ahead.h"
#include "kernels/bodies/row.h"
#include "kernels/bodies/truncate.h"
#include "kernels/core/fused_round.h"

namespace specd {

// Whether the warp that completes the rows of a place may judge the place. It may if another pass
// over a whole row is unlikely. Two cases can still take such a pass: a rejected token that was
// sampled, and filters that leave many elements (NumLaunches). A third case is so rare that the
// warp makes the pass: if masks leave only EOS and stop ids, min_tokens yields after another pass.
inline bool IsJudgedAhead(const RoundBatch& batch, const Task& task) {
  if (task.kind != TaskKind::kVerify || !IsReadAhead(task, TargetTaskRow(0))) return false;
  for (const ElementRules& rules : {batch.target.rules, batch.draft.rules}) {
    // The check that probabilities sum to 1 takes a pass of its own.
    if (rules.kind != RowKind::kLogits && !rules.renormalise) return false;
  }
  // Only the team that decides the task judges the places of a tree, and looks at every id's noise.
  return !IsTree(task) && task.method != VerifyMethod::kBlock && task.rng == Rng::kPhilox;
}

// Whether such a warp may also decide the task. The scores of tokens take passes over their rows.
// Decide asks the task itself.
inline bool IsDecidedAtOnce(const RoundBatch& batch, const Task& task) {
  return IsJudgedAhead(batch, task) && !task.scores.enabled;
}

// Whether the draft row of this node and the target row of its place decide together if the draft
// continues. Each node of a chain has a place of its own.
inline bool ArePartners(const RoundBatch& batch, const Task& task, int32_t node) {
  return IsJudgedAhead(batch, task) && task.method == VerifyMethod::kToken &&
         IsReadAhead(task, TargetTaskRow(node)) && IsReadAhead(task, DraftTaskRow(node));
}

// FusedRound::num_launches of one task.
inline int32_t NumLaunches(const RoundBatch& batch, const Task& task) {
  const int32_t vocab_size = batch.target.vocab_size;
  if (!IsDecidedAtOnce(batch, task)) return 3;
  if (task.method == VerifyMethod::kGreedy) return 1;
  if (HasFilters(task.target_filters, vocab_size)) return 3;
  const bool may_fall = task.method == VerifyMethod::kToken && AnyDrawn(task.draft);
  if (!may_fall) return 1;
  // If a side channel replaces draft rows, those rows have not been read.
  const bool is_known = task.draft.draft_weights == nullptr;
  return is_known && !HasFilters(task.draft_filters, vocab_size) ? 2 : 3;
}

// Whether the mass of a row is needed to the bit. A draw needs none, and a one-hot draft token
// nearly never.
inline bool NeedsMass(const RoundBatch& batch, const Task& task, int32_t task_row) {
  if (!IsJudgedAhead(batch, task) || !IsTargetRow(task_row)) return true;
  if (HasFilters(task.target_filters, batch.target.vocab_size)) return true;
  const int32_t place = IndexOfTaskRow(task_row);
  return task.method == VerifyMethod::kToken && place < task.draft.num_nodes &&
         IsDrawn(task.draft, place);
}

inline uint32_t AheadFlagsOf(const RoundBatch& batch, const Task& task, int32_t task_row) {
  const bool is_target = IsTargetRow(task_row);
  const bool greedy = task.kind == TaskKind::kVerify && task.method == VerifyMethod::kGreedy;
  const Filters& filters = is_target ? task.target_filters : task.draft_filters;
  const ElementRules& rules = is_target ? batch.target.rules : batch.draft.rules;
  Row row;
  bool is_open = false;  // overrides may be added later
  if (is_target || task.draft_edits) {
    row.sequence = task.edits;
    if (task.places != nullptr) row.place = task.places[PlaceOfTaskRow(task.draft, task_row)];
    is_open = NeedsResolve(task) && Counts(task.edits.penalties);
  }
  const bool plain =
      row.plain() && !row.place.IsMasked() && !is_open && ArriveFunction{rules}.IsIdentity();
  const bool sums = !greedy && NeedsSums(filters, batch.target.vocab_size);
  return (plain ? kAheadPlain : 0u) | (sums ? kAheadSums : 0u) |
         (sums && NeedsMass(batch, task, task_row) ? kAheadMass : 0u) |
         (IsJudgedAhead(batch, task) ? kAheadJudged : 0u);
}

// Fills the rows and counts of a round over the tasks of `batch`. `rows` has room for NumTaskRows
// of every task, and `row_arrivals` for one more. `progress` has one entry for each task. All
// memory that tasks point to is readable here. row_of(task, task_row) is the row's number on the
// processor of the round. Sets num_rows and num_launches.
template <typename RowOf>
void ListRowsAhead(const RoundBatch& batch, int32_t max_draft, const RowOf& row_of, AheadRow* rows,
                   int32_t* row_arrivals, TaskProgress* progress, FusedRound* round) {
  round->num_rows = 0;
  round->num_launches = 1;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    progress[i] = {.at_once = IsDecidedAtOnce(batch, batch.tasks[i]) ? 1 : 0};
    round->num_launches = std::max(round->num_launches, NumLaunches(batch, batch.tasks[i]));
    for (int32_t task_row = 0; task_row < NumTaskRows(max_draft); ++task_row) {
      const bool is_counted =
          IsReadAhead(batch.tasks[i], task_row) &&
          (IsTargetRow(task_row) || !ArePartners(batch, batch.tasks[i], IndexOfTaskRow(task_row)));
      progress[i].num_rows += is_counted ? 1 : 0;
    }
  }
  int32_t first_of_task_row = 0;
  for (int32_t task_row = 0; task_row < NumTaskRows(max_draft); ++task_row) {
    // The target rows of a place come before its draft rows, and both in the order of tasks.
    int32_t target = IsTargetRow(task_row) ? 0 : first_of_task_row;
    first_of_task_row = round->num_rows;
    for (int32_t i = 0; i < batch.num_tasks; ++i) {
      const Task& task = batch.tasks[i];
      if (!IsReadAhead(task, task_row)) continue;
      const ElementRules& rules = IsTargetRow(task_row) ? batch.target.rules : batch.draft.rules;
      const float scale = IsTargetRow(task_row) ? task.target_scale : task.draft_scale;
      row_arrivals[round->num_rows] = 0;
      rows[round->num_rows++] = {
          .task = i,
          .task_row = task_row,
          .place = PlaceOfTaskRow(task.draft, task_row),
          .flags = AheadFlagsOf(batch, task, task_row),
          .row = row_of(i, task_row),
          .scale = rules.kind == RowKind::kFinalProbabilities ? 1.0f : scale};
      if (IsTargetRow(task_row) || !ArePartners(batch, task, IndexOfTaskRow(task_row))) continue;
      while (rows[target].task != i) ++target;
      rows[target].partner = round->num_rows - 1;
      rows[round->num_rows - 1].partner = target;
    }
  }
  row_arrivals[round->num_rows] = 0;
}

// The same if the tasks' own row numbers are valid.
inline void ListRowsAhead(const RoundBatch& batch, int32_t max_draft, AheadRow* rows,
                          int32_t* row_arrivals, TaskProgress* progress, FusedRound* round) {
  const auto row_of = [&](int32_t task, int32_t task_row) {
    const Draft& draft = batch.tasks[task].draft;
    return (IsTargetRow(task_row) ? draft.target_rows : draft.draft_rows)[IndexOfTaskRow(task_row)];
  };
  ListRowsAhead(batch, max_draft, row_of, rows, row_arrivals, progress, round);
}

}  // namespace specd
