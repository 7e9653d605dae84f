// Decide decides one task for a single warp, once all places of the task have verdicts. It leaves
// the remaining work to later launches.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// A task that Decide has deferred, at the place where it goes on.
SPECD_INLINE PausedTask BegunTask(const TaskProgress& progress) {
  PausedTask task;
  task.has_begun = true;
  task.place = progress.num_decided;
  task.last_node = NodeBefore(progress.num_decided);
  task.outcome.num_drafts = progress.num_drafts;
  task.outcome.num_accepted = task.outcome.num_tokens = progress.num_decided;
  task.outcome.point_masses = static_cast<uint32_t>(progress.num_points);
  return task;
}

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
    progress->num_drafts = outcome.num_drafts;
    progress->num_decided = outcome.num_accepted;
    progress->num_points = static_cast<int32_t>(outcome.point_masses);
    progress->deferred = 1;
    return -1;
  }
  if (run.deferred()) outcome = run.GiveUp();
  round.batch.outcomes[task] = outcome;
  return -1;
}

}  // namespace specd
