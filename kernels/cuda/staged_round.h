// StagedRound: a FusedRound with the lists and counters that only its launch needs, in an arena.
//
// Whoever runs rounds on a device takes one for each round that is to be there, fills it and brings
// the arena over. A view of the arena's memory; not for several threads at once.
#pragma once

#include <cstdint>

#include "kernels/core/fused_round.h"
#include "kernels/cuda/staging.h"

namespace specd {

class StagedRound {
 public:
  // Takes room for a round of so many tasks at most. Where the arena is full, nothing below is
  // allowed.
  StagedRound(int32_t max_tasks, int32_t max_draft, Arena* arena);

  // Where the round will be; the same place for every round that is the first in its arena.
  const FusedRound* device() const { return round_.device; }

  // `batch` is the device's; `tasks` are its tasks as the host has them, and `staged` as they were
  // staged in the arena; `workspaces` the device's, FusedWorkspaceBytes for each task. Returns
  // whether a task may be deferred.
  bool Fill(const RoundBatch& batch, const ChainTask* tasks, const ChainTask* staged,
            char* workspaces) const;

 private:
  const Arena& arena_;
  int32_t max_draft_;
  StagedArray<FusedRound> round_;
  StagedArray<AheadRow> rows_;
  StagedArray<int32_t> row_arrivals_;
  StagedArray<TaskProgress> progress_;
};

}  // namespace specd
