#include "kernels/cuda/cluster_thread.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"
#include "kernels/warps/record.h"

namespace specd {

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    RunRecordKernel(const FusedRound* round, TokenId* tokens) {
  RunRecord(ClusterThread(), RoundOfBlock(round), tokens);
}

}  // namespace

cudaError_t LoadRecordKernel(DeviceShape* device) {
  bool has_clusters = false;
  return LoadClusterKernel(RunRecordKernel, &has_clusters, &device->blocks_per_record);
}

// Not an early launch: the kernel does not wait for the launches before it.
cudaError_t EnqueueRecord(const FusedRound* round, TokenId* tokens, const RoundBounds& bounds,
                          const DeviceShape& device, cudaStream_t stream) {
  cudaLaunchAttribute cluster;
  cudaLaunchConfig_t config =
      ConfigFor(bounds, device.num_processors, device.blocks_per_record, &cluster);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, RunRecordKernel, round, tokens);
}

}  // namespace specd
