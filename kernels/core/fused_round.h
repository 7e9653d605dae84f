// FusedRound: a round as one launch of many blocks takes it, for GpuDriver::LaunchRound.
//
// kernels/bodies/fused_round.h runs it. Plain data: whoever makes one keeps its memory alive.
#pragma once

#include <cstdint>

#include "kernels/core/round.h"

namespace specd {

// One row that is read before its task is decided, or the word that a task has none of them: then
// it only needs deciding. Slots: kernels/bodies/read_ahead.h.
struct AheadRow {
  int32_t task = 0;
  int32_t slot = -1;
  int32_t num_rows = 1;  // how many of these the task has
};

// Memory is that of the processor that runs it.
struct FusedRound {
  RoundBatch batch;
  const AheadRow* rows = nullptr;  // in order of place; every task has one at least
  int32_t num_rows = 0;
  int32_t* arrivals = nullptr;  // one for each task, all 0
  char* workspaces = nullptr;   // FusedWorkspaceBytes for each task, one after another
  int32_t max_draft = 0;
};

}  // namespace specd
