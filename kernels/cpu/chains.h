// ChainFunctions are the bodies compiled for one instruction set, for CpuBackend.
//
// chains_baseline.cc, chains_avx2.cc and chains_avx512.cc instantiate these templates over one team
// each, with the flags of their target. cpu_backend.cc picks one of them when it starts.
#pragma once

#include "kernels/bodies/transform.h"
#include "kernels/bodies/verify.h"
#include "kernels/core/round.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {

// The bodies for one instruction set: one task, or one row, from one seat. `workspace` has the size
// for the vocabulary and the longest draft, and the team shares it.
struct ChainFunctions {
  void (*run_task)(const RoundBatch& batch, int32_t index, const TaskWorkspace& workspace,
                   const TeamSeat& seat);
  void (*transform_row)(const TransformBatch& batch, int32_t index, const TaskWorkspace& workspace,
                        const TeamSeat& seat);
};

extern const ChainFunctions kChainsBaseline;
#if defined(SPECD_HAVE_SIMD)
extern const ChainFunctions kChainsAvx2;
extern const ChainFunctions kChainsAvx512;
#endif

template <Team T>
void RunTaskFrom(const RoundBatch& batch, int32_t index, const TaskWorkspace& workspace,
                 const TeamSeat& seat) {
  T team(seat);
  const Task& task = batch.tasks[index];
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  const TaskOutcome outcome = RunTask(team, batch, task, workspace, coins, OutputOf(batch, index));
  if (team.leader()) batch.outcomes[index] = outcome;
}

template <Team T>
void TransformRowFrom(const TransformBatch& batch, int32_t index, const TaskWorkspace& workspace,
                      const TeamSeat& seat) {
  T team(seat);
  const RowTransform& transform = batch.rows[index];
  const RowView row = RowAt(batch.source, transform.row);
  const OutcomeStatus status = TransformRow(team, row, transform, workspace.target);
  if (team.leader()) batch.statuses[index] = status;
}

}  // namespace specd
