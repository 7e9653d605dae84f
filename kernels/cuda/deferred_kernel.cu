#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"
#include "kernels/warps/fused_round.h"

namespace specd {

namespace {

// The blocks that decide a task together, if blocks can wait for each other (clusters, from compute
// capability 9.0 on). A pass over a row then takes a few tiles of each warp.
constexpr int kBlocksPerTask = 8;

// A thread of a cluster, which acts as one large block. On older devices each block acts alone.
class ClusterThread : public CudaThread {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ __forceinline__ int32_t warp() const {
    return static_cast<int32_t>(cooperative_groups::cluster_group::block_rank()) *
               CudaThread::num_warps() +
           CudaThread::warp();
  }
  __device__ __forceinline__ int32_t num_warps() const {
    return static_cast<int32_t>(cooperative_groups::cluster_group::num_blocks()) *
           CudaThread::num_warps();
  }
  __device__ __forceinline__ int32_t block() const {
    return CudaThread::block() /
           static_cast<int32_t>(cooperative_groups::cluster_group::num_blocks());
  }
  __device__ __forceinline__ int32_t num_blocks() const {
    return CudaThread::num_blocks() /
           static_cast<int32_t>(cooperative_groups::cluster_group::num_blocks());
  }
  // Releases and acquires all memory, as __syncthreads does for a block.
  __device__ __forceinline__ void Sync() const { cooperative_groups::cluster_group::sync(); }
#endif
};

__global__ void __launch_bounds__(kThreadsPerBlock) RunDeferredKernel(const FusedRound* round) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // the earlier launches have ended, and their writes are visible
#endif
  RunDeferredTasks(ClusterThread(), RoundOfBlock(round));
}

// Clusters of kBlocksPerTask blocks that wait for each other, or single blocks.
cudaLaunchConfig_t ConfigOf(int num_tasks, int blocks_per_task, cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim = {static_cast<unsigned>(blocks_per_task), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_tasks * blocks_per_task));
  config.blockDim = dim3(kThreadsPerBlock);
  config.attrs = cluster;
  config.numAttrs = blocks_per_task > 1 ? 1 : 0;
  return config;
}

}  // namespace

// A kernel made from PTX for an older device does not have the code for 9.0. A cluster also needs
// all its blocks at once, and a share of a device may not have them.
cudaError_t LoadDeferredKernel(DeviceShape* device) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, RunDeferredKernel);
  if (error != cudaSuccess) return error;
  device->launches_dependents = attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
  device->blocks_per_task = 1;
  if (!device->launches_dependents) return cudaSuccess;
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = ConfigOf(1, kBlocksPerTask, &cluster);
  int num_clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&num_clusters, RunDeferredKernel, &config);
  if (error == cudaSuccess && num_clusters > 0) device->blocks_per_task = kBlocksPerTask;
  return error;
}

cudaError_t EnqueueDeferred(const FusedRound* round, const RoundBounds& bounds,
                            const DeviceShape& device, cudaStream_t stream) {
  const int most =
      std::max(device.num_processors * kBlocksPerProcessor / device.blocks_per_task, 1);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config =
      ConfigOf(std::min(WideFor(bounds), most), device.blocks_per_task, attributes);
  config.stream = stream;
  if (device.launches_dependents) attributes[config.numAttrs++] = EarlyLaunch();
  config.attrs = attributes;
  return cudaLaunchKernelEx(&config, RunDeferredKernel, round);
}

}  // namespace specd
