// RoundOfBlock: the round of a launch, which lies in device memory so that a captured launch does
// whatever round is there, as near to a block's threads as an argument would be.
#pragma once

#include <cstdint>

#include "kernels/core/fused_round.h"

namespace specd {

// By all threads of a block, once.
__device__ __forceinline__ const FusedRound& RoundOfBlock(const FusedRound* round) {
  static_assert(sizeof(FusedRound) % sizeof(uint32_t) == 0);
  constexpr int kWords = sizeof(FusedRound) / sizeof(uint32_t);
  __shared__ alignas(FusedRound) uint32_t words[kWords];
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) {
    words[i] = reinterpret_cast<const uint32_t*>(round)[i];
  }
  __syncthreads();
  return *reinterpret_cast<const FusedRound*>(words);
}

}  // namespace specd
