// StagedRound: a FusedRound with the lists and counters that only its launch needs, in an arena.
//
// Whoever runs rounds on a device takes one for each round that is to be there, fills it and brings
// the arena over. A view of the arena's memory; not for several threads at once.
#pragma once

#include <cstdint>

#include "kernels/core/fused_round.h"
#include "kernels/cuda/staging.h"

namespace specd {

// The memory of the device, besides what is staged, that any round within the limits runs with, and
// with slots of at most this room.
int64_t RoundMemoryBytes(int32_t vocab_size, int32_t max_draft, int32_t recent_room,
                         int32_t max_tasks);

class StagedRound {
 public:
  // Takes room for a round of so many tasks at most. Where the arena is full, nothing below is
  // allowed.
  StagedRound(int32_t max_tasks, int32_t max_draft, Arena* arena);

  // Where the round will be; the same place for every round that is the first in its arena.
  const FusedRound* device() const { return round_.device; }

  // `batch` is the device's; `tasks` are its tasks as the host has them, and `staged` as they were
  // staged in the arena; `memory` is the device's, RoundMemoryBytes. Returns
  // FusedRound::num_launches.
  int32_t Fill(const RoundBatch& batch, const Task* tasks, const Task* staged, char* memory) const;

  // After Fill: does a task leave something to the device, so that LaunchResolve is needed?
  bool resolves() const { return round_.host->resolve.given != nullptr; }

 private:
  const Arena& arena_;
  int32_t max_draft_;
  StagedArray<FusedRound> round_;
  StagedArray<AheadRow> rows_;
  StagedArray<int32_t> row_arrivals_;
  StagedArray<TaskProgress> progress_;
};

}  // namespace specd
