// Decide decides one task for a single warp, once all places of the task have verdicts. It leaves
// the remaining work to later launches.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// Run by a warp alone. kReplaced: fallen tokens have been replaced, so no residual is left.
// REQUIRES: the warps that complete the rows judge the task's places.
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
  if (progress->at_once == 0) return;  // a team of its own does the rest
  if (run.deferred() && round.num_launches == 3) {
    progress->deferred = 1;
    return;
  }
  if (run.deferred()) outcome = run.GiveUp();
  round.batch.outcomes[task] = outcome;
}

}  // namespace specd
