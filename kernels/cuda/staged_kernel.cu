#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/warps/fetch.h"
#include "kernels/warps/staged_turn.h"

namespace specd {

namespace {

// SystemWords reads and writes words that the host reads and writes at the same time.
struct SystemWords {
  __device__ __forceinline__ uint64_t Acquire(const uint64_t* word) const {
    uint64_t value = 0;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  // A release for the whole system also covers the writes of earlier launches, because those ended
  // before this thread began.
  __device__ __forceinline__ void Release(uint64_t value, uint64_t* word) const {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
  }
};

__global__ void TakeStagedKernel(StagedPlan plan) { TakeStaged(SystemWords(), plan); }

__global__ void __launch_bounds__(kThreadsPerBlock) FetchStagedKernel(StagedPlan plan) {
  RunFetch(CudaThread(), FetchOfTurn(plan));
}

__global__ void EndStagedKernel(StagedPlan plan) { EndStaged(SystemWords(), plan); }

}  // namespace

cudaError_t LoadStagedKernels() {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, TakeStagedKernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, FetchStagedKernel);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, EndStagedKernel);
  return error;
}

cudaError_t EnqueueTakeStaged(const StagedPlan& plan, cudaStream_t stream) {
  const cudaError_t error = Launch(1, 1, stream, TakeStagedKernel, plan);
  if (error != cudaSuccess) return error;
  return Launch(NumFetchBlocks(plan.usual_bytes), kThreadsPerBlock, stream, FetchStagedKernel,
                plan);
}

cudaError_t EnqueueEndStaged(const StagedPlan& plan, cudaStream_t stream) {
  return Launch(1, 1, stream, EndStagedKernel, plan);
}

}  // namespace specd
