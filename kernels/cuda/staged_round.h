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

  // `tasks` are those of the batch, which is the device's, as the host has them; `workspaces` the
  // device's, FusedWorkspaceBytes for each task.
  void Fill(const RoundBatch& batch, const ChainTask* tasks, char* workspaces) const;

 private:
  int32_t max_draft_;
  StagedArray<FusedRound> round_;
  StagedArray<AheadRow> rows_;
  StagedArray<int32_t> arrivals_;
};

}  // namespace specd
