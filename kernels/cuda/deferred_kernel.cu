#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"

namespace specd {

namespace {

// Blocks that decide a task together, where blocks can wait for one another (clusters, from compute
// capability 9.0 on): a pass over a row then takes a few tiles of each warp.
constexpr int kBlocksPerTask = 8;

// A thread of a cluster that is one large block. On older devices each block is one by itself.
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
  cudaGridDependencySynchronize();  // the round before it has ended, and what it wrote is seen
#endif
  RunDeferredTasks(ClusterThread(), RoundOfBlock(round));
}

}  // namespace

cudaError_t LoadDeferredKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, RunDeferredKernel);
}

cudaError_t EnqueueDeferred(const FusedRound* round, const RoundBounds& bounds,
                            const DeviceShape& device, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kBlocksPerTask, 1, 1};
  // It may be brought to the device while the round before it ends.
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  const int blocks_per_task = device.has_clusters ? kBlocksPerTask : 1;
  const int most = std::max(device.num_processors * kBlocksPerProcessor / blocks_per_task, 1);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(bounds.num_tasks, most) * blocks_per_task));
  config.blockDim = dim3(kThreadsPerBlock);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = device.has_clusters ? 2 : 0;
  return cudaLaunchKernelEx(&config, RunDeferredKernel, round);
}

}  // namespace specd
