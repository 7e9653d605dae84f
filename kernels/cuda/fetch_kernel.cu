#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/warps/fetch.h"

namespace specd {

namespace {

// The bytes in flight of these blocks are enough for the fastest host link. More blocks would only
// take longer to start.
constexpr size_t kMostBlocks = 64;

__global__ void __launch_bounds__(kThreadsPerBlock) FetchKernel(FetchPlan plan) {
  RunFetch(CudaThread(), plan);
}

}  // namespace

cudaError_t LoadFetchKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, FetchKernel);
}

unsigned NumFetchBlocks(size_t usual_bytes) {
  constexpr size_t kBlockBytes = kThreadsPerBlock * kFetchUnit;
  const size_t blocks = (usual_bytes + kBlockBytes - 1) / kBlockBytes;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

cudaError_t EnqueueFetch(const FetchPlan& plan, cudaStream_t stream) {
  return Launch(NumFetchBlocks(plan.usual_bytes), kThreadsPerBlock, stream, FetchKernel, plan);
}

}  // namespace specd
