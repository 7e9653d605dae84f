// Decide decides one task for a single warp, once all places of the task have verdicts. It leaves
// the remaining work to later launches.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// Run by a warp alone. kReplaced: fallen tokens have been replaced, so no residual is left. Returns
// the place whose token the second launch replaces, or -1.
// REQUIRES: the warps that complete the rows judge the task's places.
template <bool kReplaced = false, Team T, typename CoinSource>
SPECD_STEP int32_t Decide(ChainRows<T, CoinSource>& rows, const FusedRound& round, int32_t task) {
  TaskProgress* const progress = &round.progress[task];
  TaskRun<T, CoinSource, true> run(rows, OutputOf(round.batch, task));
  TaskOutcome outcome = run.Run();
  if (!kReplaced && run.fallen() >= 0) return run.fallen();
  if (!rows.team().leader()) return -1;
  if (rows.task().scores.enabled) return -1;  // IsDecidedAtOnce
  if (run.deferred() && round.num_launches == 3) {
    progress->deferred = 1;
    return -1;
  }
  if (run.deferred()) outcome = run.GiveUp();
  round.batch.outcomes[task] = outcome;
  return -1;
}

}  // namespace specd
