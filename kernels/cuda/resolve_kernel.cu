#include <algorithm>

#include "kernels/bodies/resolve.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"

namespace specd {

namespace {

// Each warp resolves a task.
constexpr int kResolveThreads = 128;

// A multiprocessor runs one block (EnqueueResolve), so ptxas need not spill to make room for more.
__global__ void __launch_bounds__(kResolveThreads, 1) ResolveKernel(const FusedRound* round) {
  RunResolve(CudaThread(), RoundOfBlock(round));
}

}  // namespace

cudaError_t LoadResolveKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, ResolveKernel);
}

cudaError_t EnqueueResolve(const FusedRound* round, const RoundBounds& bounds,
                           int32_t num_processors, cudaStream_t stream) {
  constexpr int kTasksPerBlock = kResolveThreads / 32;
  const int num_blocks = (WideFor(bounds) + kTasksPerBlock - 1) / kTasksPerBlock;
  return Launch(std::min(num_blocks, num_processors), kResolveThreads, stream, ResolveKernel,
                round);
}

}  // namespace specd
