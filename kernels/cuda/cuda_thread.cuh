// CudaThread: the Thread of warp_team.h on a GPU. One instance per thread of a one-dimensional
// block whose size is a multiple of 32.
#pragma once

#include "kernels/bodies/warp_team.h"

namespace specd {

class CudaThread {
 public:
  __device__ __forceinline__ int32_t lane() const { return static_cast<int32_t>(threadIdx.x) % 32; }
  __device__ __forceinline__ int32_t warp() const { return static_cast<int32_t>(threadIdx.x) / 32; }
  __device__ __forceinline__ int32_t num_warps() const {
    return static_cast<int32_t>(blockDim.x) / 32;
  }
  __device__ __forceinline__ uint32_t Shuffle(uint32_t value, int32_t source) const {
    return __shfl_sync(kWholeWarp, value, source);
  }
  __device__ __forceinline__ uint32_t Ballot(bool predicate) const {
    return __ballot_sync(kWholeWarp, predicate);
  }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }

 private:
  static constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
};

}  // namespace specd
