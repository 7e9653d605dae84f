#include "kernels/cuda/cluster_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"
#include "kernels/warps/fused_round.h"

namespace specd {

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock) RunDeferredKernel(const FusedRound* round) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // the earlier launches have ended, and their writes are visible
#endif
  RunDeferredTasks(ClusterThread(), RoundOfBlock(round));
}

}  // namespace

cudaError_t LoadDeferredKernel(DeviceShape* device) {
  return LoadClusterKernel(RunDeferredKernel, &device->launches_dependents,
                           &device->blocks_per_task);
}

cudaError_t EnqueueDeferred(const FusedRound* round, const RoundBounds& bounds,
                            const DeviceShape& device, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config =
      ConfigFor(bounds, device.num_processors, device.blocks_per_task, attributes);
  config.stream = stream;
  if (device.launches_dependents) attributes[config.numAttrs++] = EarlyLaunch();
  config.attrs = attributes;
  return cudaLaunchKernelEx(&config, RunDeferredKernel, round);
}

}  // namespace specd
