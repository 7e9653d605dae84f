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
  __device__ __forceinline__ int64_t block() const { return blockIdx.x; }
  __device__ __forceinline__ int64_t num_blocks() const { return gridDim.x; }
  __device__ __forceinline__ uint32_t Shuffle(uint32_t value, int32_t source) const {
    return __shfl_sync(kWholeWarp, value, source);
  }
  __device__ __forceinline__ uint32_t Ballot(bool predicate) const {
    return __ballot_sync(kWholeWarp, predicate);
  }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }
  // The barrier orders what the block's threads wrote before the fence of the one that counts.
  __device__ __forceinline__ bool IsLastToArrive(int32_t* counter, int32_t num_arrivals) const {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      is_last = atomicAdd(counter, 1) + 1 == num_arrivals;
      if (is_last) *counter = 0;
      __threadfence();
    }
    __syncthreads();
    const bool result = is_last;
    __syncthreads();  // before the next arrival writes it
    return result;
  }

 private:
  static constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
};

}  // namespace specd
