// Decide: what one warp can say of a task once all its places have been judged, and what it leaves
// to the launches that follow.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// By a warp alone. kReplaced: what fell has been replaced, so nothing is left to residuals.
// REQUIRES: the task's places are judged by whoever is last with their rows.
template <bool kReplaced = false, Team T, typename CoinSource>
SPECD_STEP void Decide(ChainRows<T, CoinSource>& rows, const FusedRound& round, int32_t task) {
  TaskProgress* const progress = &round.progress[task];
  TaskRun<T, CoinSource, true> run(rows, OutputOf(round.batch, task));
  TaskOutcome outcome = run.Run();
  if (!rows.team().leader()) return;
  if (!kReplaced && run.fallen() >= 0) {
    progress->fallen = run.fallen() + 1;
    return;
  }
  if (progress->at_once == 0) return;  // the rest is done by a team of its own
  if (run.deferred() && round.num_launches == 3) {
    progress->deferred = 1;
    return;
  }
  if (run.deferred()) outcome = run.GiveUp();
  round.batch.outcomes[task] = outcome;
}

}  // namespace specd
