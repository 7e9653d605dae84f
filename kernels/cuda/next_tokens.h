// NextTokens: what goes to next tokens of tasks whose answers have come back, where no kernel
// writes it.
//
// In the order of slots, so that neighbours are one copy. A view of the arena's memory, which must
// stay as it is until Synchronize where anything was copied.
#pragma once

#include <cstdint>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/staging.h"

namespace specd {

class NextTokens {
 public:
  // Of the round's tasks from `first` on. REQUIRES: the arena, in pinned memory, has room.
  NextTokens(const RoundBatch& batch, int32_t first, int32_t count, Arena* arena);

  // To memory of the host.
  void Store(TokenId* ids) const;
  // Enqueues copies to memory of a device.
  GpuResult Copy(TokenId* ids, GpuDriver* driver) const;

 private:
  struct Place {
    uint32_t slot = 0;
    TokenId token = kNoToken;
  };

  Place* places_ = nullptr;
  TokenId* tokens_ = nullptr;  // the same ones, without gaps
  int32_t count_ = 0;
};

}  // namespace specd
