// RunRecord writes the decisions of a round that has run, for the last launch of a recorded round
// on a GPU.
//
// The launches that answer the round keep no records. RunRecord decides each task once more, from
// the rows and from what the tile pass left of them. Every processor computes the same bits, so it
// finds what the answer came from. It touches no answer: a recorded round is answered by the same
// code as any other.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/fused_round.h"
#include "kernels/warps/recording_team.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// Runs after all other launches of the round have ended. If the round has no RoundBatch::decisions,
// the call does nothing. `tokens` has room for num_tasks * tokens_stride; what it holds is not
// used. REQUIRES: the rows and the workspaces are as those launches left them.
template <typename Thread>
SPECD_HD void RunRecord(const Thread& thread, const FusedRound& round, TokenId* tokens) {
  if (round.batch.decisions == nullptr) return;
  RecordingTeam<Thread> team(thread);
  for (int64_t i = thread.block(); i < round.batch.num_tasks; i += thread.num_blocks()) {
    const auto task_index = static_cast<int32_t>(i);
    const Task& task = round.batch.tasks[task_index];
    if (task.kind != TaskKind::kVerify) continue;
    TaskOutput output;
    output.tokens = tokens + i * round.batch.tokens_stride;
    const TaskWorkspace workspace = FusedWorkspaceAt(round, task_index);
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    ChainRows<RecordingTeam<Thread>, KeyedCoins> rows(team, round.batch, task, workspace, coins);
    rows.RecordInto(OutputOf(round.batch, i).decisions);
    TaskRun<RecordingTeam<Thread>, KeyedCoins>(rows, output).Decide();
  }
}

}  // namespace specd
