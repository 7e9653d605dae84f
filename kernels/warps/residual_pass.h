// RunResidualPass replaces the fallen tokens of a round from residuals, for the second launch of a
// GPU.
//
// After the tile pass, each task is complete except for the place at which its draft fell
// (FallenPlace). The tile pass has listed the tasks with such a place. Warps share the tiles of
// their residuals. The warp that completes a residual draws from it and decides the task. The pass
// reads the place's two rows once more. If the target row has a cut, the pass reads only steps with
// a survivor. As in the tile pass no warp waits for another, so any number of blocks gives the same
// answers, and tiles stay in registers. Thread is the class of tile_pass.h.
#pragma once

#include "kernels/warps/decide.h"
#include "kernels/warps/warp_pair.h"

namespace specd {

// Rows that are not plain are read with the edits of their tasks.
template <Team T, typename CoinSource>
SPECD_HD Distribution RecallTarget(const ChainRows<T, CoinSource>& rows, int32_t i) {
  const FallenPlace& place = *FallenPlaceAt(rows.workspace(), i);
  Distribution p = rows.Recall(rows.TargetRow(i), place.target);
  p.stats.peaks = const_cast<float*>(place.target_peaks);
  return p;
}
template <Team T, typename CoinSource>
SPECD_HD Distribution RecallDraft(const ChainRows<T, CoinSource>& rows, int32_t i) {
  return rows.Recall(rows.DraftRow(i), FallenPlaceAt(rows.workspace(), i)->draft);
}

// A part of the residuals of a list.
struct FallenPart {
  int32_t num_fallen = 0;  // tasks in the list
  int32_t part = 0;
};

// The tasks in the list. A warp that looks after the last part is done sees 0, and has no part
// either way. A turn without a staged round has no list.
template <typename Thread>
SPECD_INLINE int32_t NumFallen(const Thread& thread, const FusedRound& round) {
  return round.batch.num_tasks == 0 ? 0 : thread.Peek(round.fallen.count);
}

// Each listed task counts as one row.
template <typename Thread>
SPECD_INLINE Parts PartsOfResiduals(const Thread& thread, const FusedRound& round,
                                    int32_t num_fallen) {
  return Parts({.vocab_size = round.batch.target.vocab_size,
                .num_rows = num_fallen,
                .num_warps = thread.num_warps() * thread.num_blocks()});
}

// Like NextPart, but it also counts if no part is left to take: the call that comes last empties
// the list for the next round. All parts are done by then, and the warps that have not begun yet
// had none.
template <typename Thread>
SPECD_INLINE int32_t NextResidual(const Thread& thread, const FusedRound& round,
                                  const Parts& parts) {
  const int32_t next = parts.num_warps + TakePart(thread, round, parts);
  if (next + 1 == parts.num_warps + parts.num_parts) thread.Note(0, round.fallen.count);
  return next;
}
template <typename Thread>
SPECD_INLINE bool IsLastWithResidual(const Thread& thread, const FusedRound& round,
                                     const Parts& parts, int32_t task) {
  return thread.IsLastToArrive(&round.progress[task].rows_done, parts.parts_per_row);
}

// Like ReadParts: reads until the warp completes a residual, or reaches one with rows that are not
// plain. On a GPU this function calls no other, and it has no registers left for `parts`.
template <typename Thread>
SPECD_BODY int32_t ReadPlainResiduals(Thread thread, const FusedRound& round, FallenPart from) {
  const Parts& parts = thread.Shared(PartsOfResiduals(thread, round, from.num_fallen));
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  int32_t part = from.part;
  for (; part < parts.num_parts; part = NextResidual(thread, round, parts)) {
    const FallenTask fallen = round.fallen.tasks[parts.RowOf(part)];
    const TaskWorkspace workspace = FusedWorkspaceAt(round, fallen.task);
    const FallenPlace place = *FallenPlaceAt(workspace, fallen.place);
    if (!place.plain) return part;
    const CutRow p = {RowAt(round.batch.target, place.target_row),
                      place.target.has_cut,
                      {place.target.cut_value, place.target.cut_last}};
    const CutRow q = {RowAt(round.batch.draft, place.draft_row),
                      place.draft.has_cut,
                      {place.draft.cut_value, place.draft.cut_last}};
    const ResidualFunction function =
        FunctionOfResidual({place.target.max, place.target.scale}, place.target.mass,
                           {place.draft.max, place.draft.scale}, place.draft.mass, {});
    const int32_t end = parts.EndOf(part);
    for (int32_t t = parts.BeginOf(part); t < end; ++t) {
      const uint32_t steps = StepsOfResidual(place.target_peaks, p.has_cut, p.cut.value, t);
      team.Publish(SumPair(team, thread.lane(), function, p, q, t, steps), &workspace.residual[t]);
    }
    if (IsLastWithResidual(thread, round, parts, fallen.task)) return part;
  }
  return part;
}

// Replaces the token of a completed residual, and decides the task.
template <Team T, typename CoinSource>
SPECD_STEP void ReplaceAndDecide(ChainRows<T, CoinSource>& rows, const Residual& residual,
                                 const FusedRound& round, const FallenTask& fallen) {
  const PlaceVerdict replacement = ReplacementAt<true>(rows, fallen.place, residual);
  // If the verdict is kLeft, the next launch does the work. It must then know that the draft fell
  // here, because later rows have not been read.
  if (replacement.verdict != Verdict::kLeft) rows.NoteVerdict(fallen.place, replacement);
  Decide<true>(rows, round, fallen.task);
}

// Runs when a warp's pass over plain rows stops.
template <typename Thread>
SPECD_HD void FinishResidual(const Thread& thread, const FusedRound& round, FallenPart at) {
  const Parts parts = PartsOfResiduals(thread, round, at.num_fallen);
  const FallenTask fallen = round.fallen.tasks[parts.RowOf(at.part)];
  const Task& task = round.batch.tasks[fallen.task];
  const TaskWorkspace workspace = FusedWorkspaceAt(round, fallen.task);
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  ChainRows<Team, KeyedCoins> rows(team, round.batch, task, workspace, coins);
  const Distribution p = RecallTarget(rows, fallen.place);
  const Distribution q = RecallDraft(rows, fallen.place);
  const Residual residual = BeginResidual(p, q, {}, workspace.residual);
  if (!FallenPlaceAt(workspace, fallen.place)->plain) {
    for (int32_t t = parts.BeginOf(at.part); t < parts.EndOf(at.part); ++t) {
      NoteResidualTile(team, residual, t, workspace.residual);
    }
    if (!IsLastWithResidual(thread, round, parts, fallen.task)) return;
  }
  ReplaceAndDecide(rows, residual, round, fallen);
}

// The work of a warp, after RunFusedRound has ended everywhere, if FusedRound::num_launches is 2 or
// more. finish(at) is called when ReadPlainResiduals stops at a FallenPart.
template <typename Thread, typename Finish>
SPECD_INLINE void RunResidualPass(const Thread& thread, const FusedRound& round,
                                  const Finish& finish) {
  FallenPart at = {.num_fallen = NumFallen(thread, round),
                   .part = thread.warp() * thread.num_blocks() + thread.block()};
  if (at.num_fallen == 0) return;
  const Parts parts = PartsOfResiduals(thread, round, at.num_fallen);
  while ((at.part = ReadPlainResiduals(thread, round, at)) < parts.num_parts) {
    finish(at);
    at.part = NextResidual(thread, round, parts);
  }
}
template <typename Thread>
SPECD_INLINE void RunResidualPass(const Thread& thread, const FusedRound& round) {
  RunResidualPass(thread, round, [&](FallenPart at) { FinishResidual(thread, round, at); });
}

}  // namespace specd
