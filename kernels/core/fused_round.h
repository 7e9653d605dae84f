// FusedRound: a round as GpuDriver::LaunchRound takes it: rows that are read by whoever comes by
// and judged by whoever is last with them, and tasks that are decided by who is last with theirs.
//
// kernels/warps/fused_round.h runs it; kernels/warps/list_rows.h lists its rows. Plain data:
// whoever makes one keeps its memory alive.
#pragma once

#include <cstdint>

#include "kernels/core/round.h"

namespace specd {

// What is known of a row before it is read.
enum AheadFlags : uint32_t {
  kAheadPlain = 1,   // nothing changes its elements: they are logits as they lie there
  kAheadSums = 2,    // the sums of its tiles are needed
  kAheadJudged = 4,  // whoever is last with it says what becomes of its place
};

// One row that is read before its task is decided. Slots: kernels/bodies/read_ahead.h. A round's
// warps take many of these, so one holds what a plain row needs, and no pointer has to be followed.
struct AheadRow {
  int32_t task = 0;
  int32_t slot = 0;
  int32_t place = 0;   // at which the row decides
  uint32_t flags = 0;  // AheadFlags
  uint32_t row = 0;    // of the target or the draft tensor
  // The other row of a place that both decide about, counted and judged with it; -1: none.
  int32_t partner = -1;
  float scale = 0;  // of the weights that are summed up
};

// What is known of a task, and what those who work on it tell one another.
struct TaskProgress {
  int32_t num_rows = 0;  // that are read ahead; two that are partners are one
  int32_t at_once = 0;   // 1: it is decided by whoever is last with them
  int32_t rows_done = 0;
  int32_t fallen = 0;    // 1 and the place where a token is to be replaced from a residual; 0: none
  int32_t deferred = 0;  // 1: it is left to a team of its own after all
  // The nodes that the draft is known not to reach. The set only grows, so a warp that has seen a
  // node dead is never contradicted.
  NodeSet dead = 0;
};

// How tasks are made that leave something to the processor (kernels/bodies/resolve.h).
struct ResolvePlan {
  const Task* given = nullptr;  // null: all tasks are as they are to be run
  Task* tasks = nullptr;        // what becomes of them: RoundBatch::tasks
  char* scratch = nullptr;      // ResolveBytes for each task, one after another
  int32_t max_draft = 0;
};

// Memory is that of the processor that runs it. What is counted and told is 0 before a round and
// after it, so the same round can be run again.
struct FusedRound {
  RoundBatch batch;
  const AheadRow* rows = nullptr;  // in order of place
  int32_t num_rows = 0;
  int32_t* row_arrivals = nullptr;   // one for each of rows; of partners the first one's counts
  TaskProgress* progress = nullptr;  // one for each task
  // So many of them are needed: 1, where every task is decided as its rows are read; 2, where all
  // that may be left is to replace tokens from residuals; 3, where a task may be left to a team of
  // its own.
  int32_t num_launches = 1;
  char* workspaces = nullptr;  // FusedWorkspaceBytes for each task, one after another
  int32_t max_draft = 0;
  ResolvePlan resolve = {};
};

}  // namespace specd
