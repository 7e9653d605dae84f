// RunResidualPass replaces the fallen tokens of a round from residuals, for the second launch of a
// GPU.
//
// After the tile pass, each task is complete except for the place at which its draft fell
// (FallenPlace). Warps share the tiles of all residuals. The warp that completes a residual draws
// from it and decides the task. The pass reads the place's two rows once more. If the target row
// has a cut, the pass reads only steps with a survivor. As in the tile pass no warp waits for
// another, so any number of blocks gives the same answers, and tiles stay in registers. Thread is
// the class of tile_pass.h.
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

// Each task counts as one row here, with or without a residual.
template <typename Thread>
SPECD_INLINE Parts PartsOfResiduals(const Thread& thread, const FusedRound& round) {
  return Parts({.vocab_size = round.batch.target.vocab_size,
                .num_rows = round.batch.num_tasks,
                .num_warps = thread.num_warps() * thread.num_blocks()});
}
template <typename Thread>
SPECD_INLINE bool IsLastWithResidual(const Thread& thread, const FusedRound& round,
                                     const Parts& parts, int32_t task) {
  return thread.IsLastToArrive(&round.progress[task].rows_done, parts.parts_per_row);
}

// Like ReadParts: reads until the warp completes a residual, or reaches one with rows that are not
// plain. On a GPU this function calls no other.
template <typename Thread>
SPECD_BODY int32_t ReadPlainResiduals(Thread thread, const FusedRound& round, int32_t part) {
  const Parts parts = PartsOfResiduals(thread, round);
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  for (; part < parts.num_parts; part = NextPart(thread, round, parts)) {
    const int32_t task = parts.RowOf(part);
    const int32_t fallen = thread.Peek(&round.progress[task].fallen);
    if (fallen == 0) continue;
    const TaskWorkspace workspace = FusedWorkspaceAt(round, task);
    const FallenPlace place = *FallenPlaceAt(workspace, fallen - 1);
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
    if (IsLastWithResidual(thread, round, parts, task)) return part;
  }
  return part;
}

// Replaces the token of a completed residual, and decides the task.
template <Team T, typename CoinSource>
SPECD_STEP void ReplaceAndDecide(ChainRows<T, CoinSource>& rows, const Residual& begun,
                                 const FusedRound& round, int32_t task, int32_t i) {
  Residual residual = begun;
  EndResidual(rows.team(), &residual);
  const PlaceVerdict replacement = ReplacementAt<true>(rows, i, residual);
  // If the verdict is kLeft, the next launch does the work. It must then know that the draft fell
  // here, because later rows have not been read.
  if (replacement.verdict != Verdict::kLeft) rows.NoteVerdict(i, replacement);
  if (rows.team().leader()) round.progress[task].fallen = 0;
  Decide<true>(rows, round, task);
}

// Runs when a warp's pass over plain rows stops.
template <typename Thread>
SPECD_HD void FinishResidual(const Thread& thread, const FusedRound& round, int32_t part) {
  const Parts parts = PartsOfResiduals(thread, round);
  const int32_t index = parts.RowOf(part);
  const Task& task = round.batch.tasks[index];
  const int32_t i = thread.Peek(&round.progress[index].fallen) - 1;
  const TaskWorkspace workspace = FusedWorkspaceAt(round, index);
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  ChainRows<Team, KeyedCoins> rows(team, round.batch, task, workspace, coins);
  const Distribution p = RecallTarget(rows, i);
  const Distribution q = RecallDraft(rows, i);
  const Residual residual = BeginResidual(p, q, {}, workspace.residual);
  if (!FallenPlaceAt(workspace, i)->plain) {
    for (int32_t t = parts.BeginOf(part); t < parts.EndOf(part); ++t) {
      NoteResidualTile(team, residual, t, workspace.residual);
    }
    if (!IsLastWithResidual(thread, round, parts, index)) return;
  }
  ReplaceAndDecide(rows, residual, round, index, i);
}

// The work of a warp, after RunFusedRound has ended everywhere, if FusedRound::num_launches is 2 or
// more. finish(part) is called when ReadPlainResiduals stops.
template <typename Thread, typename Finish>
SPECD_INLINE void RunResidualPass(const Thread& thread, const FusedRound& round,
                                  const Finish& finish) {
  const Parts parts = PartsOfResiduals(thread, round);
  int32_t part = thread.warp() * thread.num_blocks() + thread.block();
  while ((part = ReadPlainResiduals(thread, round, part)) < parts.num_parts) {
    finish(part);
    part = NextPart(thread, round, parts);
  }
}
template <typename Thread>
SPECD_INLINE void RunResidualPass(const Thread& thread, const FusedRound& round) {
  RunResidualPass(thread, round, [&](int32_t part) { FinishResidual(thread, round, part); });
}

}  // namespace specd
