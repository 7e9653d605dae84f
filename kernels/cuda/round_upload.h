// RoundUpload packs a FusedRound, with the lists and counters that its launch needs, into an arena
// for BatchUpload.
//
// The owner makes one for each round on the device, fills it and copies the arena. A view of the
// arena's memory; not for several threads at once.
#pragma once

#include <cstdint>

#include "kernels/core/fused_round.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

// The bytes of device memory, besides the arena, for any round within the limits, with at most
// recent_room tokens for each slot.
int64_t RoundMemoryBytes(int32_t vocab_size, int32_t max_draft, int32_t recent_room,
                         int32_t max_tasks);

// The ids in that memory which GpuDriver::LaunchRecord asks for.
TokenId* RecordTokensIn(char* memory);

class RoundUpload {
 public:
  // Takes room for a round of at most max_tasks. If the arena is full, no other call is allowed.
  RoundUpload(int32_t max_tasks, int32_t max_draft, Arena* arena);

  // The device address of the round. It is the same for every round that is first in its arena.
  const FusedRound* device() const { return round_.device; }

  // `batch` is the device's. `tasks` are its tasks as the host has them, and `packed` as they were
  // packed in the arena. `memory` is RoundMemoryBytes of device memory. Returns
  // FusedRound::num_launches.
  int32_t Fill(const RoundBatch& batch, const Task* tasks, const Task* packed, char* memory) const;

  // After Fill: whether a task leaves something to the device, so that LaunchResolve is needed.
  bool resolves() const { return round_.host->resolve.given != nullptr; }

 private:
  const Arena& arena_;
  int32_t max_draft_;
  ArenaArray<FusedRound> round_;
  ArenaArray<AheadRow> rows_;
  ArenaArray<int32_t> row_arrivals_;
  ArenaArray<TaskProgress> progress_;
  ArenaArray<int32_t> num_fallen_;
};

}  // namespace specd
