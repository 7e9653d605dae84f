// NextTokens writes the next tokens of finished tasks to arrays that no kernel writes, for
// CudaBackend.
//
// Tokens are in the order of slots, so neighbours are one copy. A view of the arena's memory. If
// any token was copied, that memory must not change until Synchronize.
#pragma once

#include <cstdint>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

class NextTokens {
 public:
  // Takes `count` tasks of the round from `first` on. REQUIRES: the arena, in pinned memory, has
  // room.
  NextTokens(const RoundBatch& batch, int32_t first, int32_t count, Arena* arena);

  // Writes to host memory.
  void Store(TokenId* ids) const;
  // Enqueues copies to device memory.
  GpuResult Copy(TokenId* ids, GpuDriver* driver) const;

 private:
  struct Place {
    uint32_t slot = 0;
    TokenId token = kNoToken;
  };

  Place* places_ = nullptr;
  TokenId* tokens_ = nullptr;  // the same tokens, without gaps
  int32_t count_ = 0;
};

}  // namespace specd
