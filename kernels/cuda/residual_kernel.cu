#include <algorithm>

#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"
#include "kernels/warps/residual_pass.h"

namespace specd {

namespace {

constexpr int kResidualThreads = 128;
constexpr int kResidualBlocks = 3;

// Called through a pointer for the reason given in round_kernel.cu.
using FinishFunction = void (*)(const FusedRound* round, FallenPart at);
__device__ void FinishOne(const FusedRound* round, FallenPart at) {
  FinishResidual(CudaThread(), *round, at);
}
__device__ volatile FinishFunction finish_function = FinishOne;

static_assert(kResidualThreads <= 32 * CudaThread::kSharingWarpsMax);

__global__ void __launch_bounds__(kResidualThreads, kResidualBlocks)
    RunResidualKernel(const FusedRound* round) {
// The round's first launch has ended, and its writes are visible.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  const FusedRound& of_block = RoundOfBlock(round);
  RunResidualPass(CudaThread(), of_block, [&](FallenPart at) { finish_function(&of_block, at); });
}

}  // namespace

cudaError_t LoadResidualKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, RunResidualKernel);
}

cudaError_t EnqueueResiduals(const FusedRound* round, const RoundBounds& bounds,
                             const DeviceShape& device, cudaStream_t stream) {
  constexpr int64_t kWarpsPerBlock = kResidualThreads / 32;
  const int64_t num_tiles = int64_t{WideFor(bounds)} * NumTiles(bounds.vocab_size);
  const int64_t num_blocks = std::min<int64_t>((num_tiles + kWarpsPerBlock - 1) / kWarpsPerBlock,
                                               int64_t{device.num_processors} * kResidualBlocks);
  cudaLaunchAttribute early = EarlyLaunch();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(kResidualThreads);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = device.launches_dependents ? 1 : 0;
  return cudaLaunchKernelEx(&config, RunResidualKernel, round);
}

}  // namespace specd
