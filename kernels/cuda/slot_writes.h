// SlotWrites writes the slot outputs of finished tasks to arrays that no kernel writes, for
// CudaBackend.
//
// Tasks are in the order of slots, so neighbouring rows are one copy. A view of the arena's memory
// and of the batch. If anything was copied, that memory must not change until Synchronize.
#pragma once

#include <cstdint>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

class SlotWrites {
 public:
  // Takes `count` tasks of the round from `first` on. REQUIRES: the arena, in pinned memory, has
  // room for them and for the rows of every Copy.
  SlotWrites(const RoundBatch& batch, int32_t first, int32_t count, Arena* arena);

  // Writes to host memory.
  void Store(const SlotOutput& output) const;
  // Enqueues copies to device memory.
  GpuResult Copy(const SlotOutput& output, GpuDriver* driver) const;

 private:
  struct Place {
    uint32_t slot = 0;
    int32_t task = 0;
  };

  // Whether the row of place i ends where that of the next place begins.
  bool IsJoined(const SlotOutput& output, int32_t i) const;

  const RoundBatch& batch_;
  Arena* arena_;
  Place* places_ = nullptr;
  int32_t count_ = 0;
};

}  // namespace specd
