// FusedRound describes a round for GpuDriver::LaunchRound: the rows that warps share, and the tasks
// that warps decide.
//
// The warp that completes a row judges the row. The warp that completes a task's last row decides
// the task. kernels/warps/fused_round.h runs a FusedRound; kernels/warps/list_rows.h lists its
// rows. Plain data: the maker keeps the memory alive.
#pragma once

#include <cstdint>

#include "kernels/core/round.h"

namespace specd {

// Facts about a row that are known before the row is read.
enum AheadFlags : uint32_t {
  kAheadPlain = 1,   // the elements are logits and nothing changes them
  kAheadSums = 2,    // the sums of its tiles are needed
  kAheadJudged = 4,  // the warp that completes the row judges its place
  kAheadMass = 8,    // the sum of these sums is needed to the bit
};

// One row that is read before its task is decided. kernels/bodies/read_ahead.h numbers the rows of
// a task. A round's warps read many of these records. A record therefore holds all that a plain row
// needs, and needs no second load.
struct AheadRow {
  int32_t task = 0;
  int32_t task_row = 0;
  int32_t place = 0;   // the place that the row decides
  uint32_t flags = 0;  // AheadFlags
  uint32_t row = 0;    // an index into the target or the draft tensor
  // The other row of a place that two rows decide. The two rows are counted and judged together;
  // -1: none.
  int32_t partner = -1;
  float scale = 0;  // the scale of the weights that are summed
};

// The state of a task in a round. The warps that work on the task share it.
struct TaskProgress {
  int32_t num_rows = 0;  // rows that are read ahead; two partners count as one
  int32_t at_once = 0;   // 1: the warp that completes the last row decides the task
  int32_t rows_done = 0;
  int32_t deferred = 0;  // 1: a team of the task's own decides the task
  // The nodes that the draft is known not to reach. The set only grows, so a node that a warp has
  // seen dead stays dead.
  NodeSet dead = 0;
  // What is known of a deferred task: the length of its draft, and the places that are decided.
  // Each of them has emitted its draft token, some of them with +inf.
  int32_t num_drafts = 0;
  int32_t num_decided = 0;
  int32_t num_points = 0;
};

// A task, and the place at which its draft fell. A residual replaces the token there.
struct FallenTask {
  int32_t task = 0;
  int32_t place = 0;
};

// The tasks that one launch leaves to the next. Their order differs from run to run, so nothing may
// depend on it.
struct FallenTasks {
  int32_t* count = nullptr;
  FallenTask* tasks = nullptr;  // room for every task of the round
};

// The plan for tasks that the processor completes (kernels/bodies/resolve.h).
struct ResolvePlan {
  const Task* given = nullptr;  // null: all tasks are complete
  Task* tasks = nullptr;        // the completed tasks: RoundBatch::tasks
  char* scratch = nullptr;      // ResolveBytes for each task, one after another
  int32_t max_draft = 0;
};

// The memory belongs to the processor that runs the round. The counts and the progress are 0 before
// and after a round, so the same round can run again.
struct FusedRound {
  RoundBatch batch;
  const AheadRow* rows = nullptr;  // in order of place
  int32_t num_rows = 0;
  // One for each row; partners use the count of the first one. One more counts the parts of rows
  // that warps have taken.
  int32_t* row_arrivals = nullptr;
  TaskProgress* progress = nullptr;  // one for each task
  FallenTasks fallen;                // from the first launch to the second
  // The launches that the round needs. 1: every task is decided while its rows are read. 2: tokens
  // may also have to be replaced from residuals. 3: a team of its own may have to decide a task.
  int32_t num_launches = 1;
  char* workspaces = nullptr;  // FusedWorkspaceBytes for each task, one after another
  int32_t max_draft = 0;
  ResolvePlan resolve = {};
};

}  // namespace specd
