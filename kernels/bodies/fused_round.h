// RunFusedRound: a whole round in one launch. Blocks share the tiles of all rows that may be
// needed, and the last one to arrive with a part of a task's rows decides the task.
//
// Work goes by place: first the rows of place 0 of all tasks, then those of place 1. Nobody waits
// for anybody else, so any number of blocks, in any order, gives the same answers; arrivals are
// back at 0 when the round is done. Thread is that of warp_team.h, and
//
//   block(), num_blocks()        the block's place in the launch
//   IsLastToArrive(counter, n)   waits for the block, then counts its arrival; true, in the whole
//                                block, for the n-th one, which sees what the others wrote before
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/bodies/warp_team.h"
#include "kernels/core/fused_round.h"

namespace specd {

SPECD_INLINE int64_t FusedWorkspaceBytes(int32_t vocab_size, int32_t max_draft) {
  return (ChainWorkspaceBytes(vocab_size, max_draft) + AheadBytes(vocab_size, max_draft) + 15) /
         16 * 16;
}

SPECD_INLINE ChainWorkspace FusedWorkspaceAt(const FusedRound& round, int32_t task) {
  const int32_t vocab_size = round.batch.target.vocab_size;
  char* memory = round.workspaces + task * FusedWorkspaceBytes(vocab_size, round.max_draft);
  ChainWorkspace workspace = ChainWorkspaceAt(memory, vocab_size, round.max_draft);
  workspace.ahead =
      reinterpret_cast<float*>(memory + ChainWorkspaceBytes(vocab_size, round.max_draft));
  return workspace;
}

template <typename Thread>
SPECD_HD void RunFusedRound(const Thread& thread, const FusedRound& round) {
  WarpTeam<Thread> team(thread);
  const RoundBatch& batch = round.batch;
  const int32_t num_tiles = NumTiles(batch.target.vocab_size);
  const int32_t tiles_per_item = team.num_groups();
  const int32_t items_per_row = (num_tiles + tiles_per_item - 1) / tiles_per_item;
  const int64_t num_items = int64_t{round.num_rows} * items_per_row;
  for (int64_t item = thread.block(); item < num_items; item += thread.num_blocks()) {
    const AheadRow& row = round.rows[item / items_per_row];
    const ChainTask& task = batch.tasks[row.task];
    const ChainWorkspace workspace = FusedWorkspaceAt(round, row.task);
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    ChainRows<WarpTeam<Thread>, KeyedCoins> rows(team, batch, task, workspace, coins);
    const auto part = static_cast<int32_t>(item % items_per_row);
    const int32_t tile = part * tiles_per_item + team.group();
    if (row.slot >= 0 && tile < num_tiles) rows.ReadTileAhead(row.slot, tile);
    if (!thread.IsLastToArrive(&round.arrivals[row.task], row.num_rows * items_per_row)) continue;
    const ChainOutcome outcome =
        TaskRun<WarpTeam<Thread>, KeyedCoins>(rows, OutputOf(batch, row.task)).Run();
    if (team.leader()) batch.outcomes[row.task] = outcome;
  }
}

}  // namespace specd
