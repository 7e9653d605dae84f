// RoundOfBlock gives the threads of a block fast access to the round of a launch.
//
// The round lies in device memory, so a captured launch runs any round that is there. RoundOfBlock
// brings it as near to the threads as an argument would be.
#pragma once

#include <cstdint>

#include "kernels/core/fused_round.h"

namespace specd {

// All threads of a block call this once.
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
