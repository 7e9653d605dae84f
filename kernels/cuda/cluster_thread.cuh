// ClusterThread is the Thread of kernels in which several blocks decide a task together.
//
// Blocks can wait for each other in clusters, from compute capability 9.0 on. The names have no
// linkage: each file that includes this has one kernel, and a class of its own for it.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

// The blocks that decide a task together, if blocks can wait for each other (clusters, from compute
// capability 9.0 on). A pass over a row then takes a few tiles of each warp. A larger round gives
// each task fewer blocks if tasks would otherwise wait for each other.
constexpr int kBlocksPerTask = 8;
constexpr int kLeastBlocksPerTask = 4;

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

// Clusters of blocks that wait for each other, or single blocks.
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

// As many clusters as there are tasks, or as fit on the device.
cudaLaunchConfig_t ConfigFor(const RoundBounds& bounds, int num_processors, int blocks_per_task,
                             cudaLaunchAttribute* cluster) {
  const int num_blocks = num_processors * kBlocksPerProcessor;
  while (blocks_per_task > kLeastBlocksPerTask && WideFor(bounds) * blocks_per_task > num_blocks) {
    blocks_per_task /= 2;
  }
  const int most = std::max(num_blocks / blocks_per_task, 1);
  return ConfigOf(std::min(WideFor(bounds), most), blocks_per_task, cluster);
}

// Brings the kernel to the device, and finds the blocks that decide a task of it together. A kernel
// made from PTX for an older device does not have the code for 9.0. A cluster also needs all its
// blocks at once, and a share of a device may not have them.
template <typename Kernel>
cudaError_t LoadClusterKernel(Kernel* kernel, bool* has_clusters, int* blocks_per_task) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  *has_clusters = attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
  *blocks_per_task = 1;
  if (!*has_clusters) return cudaSuccess;
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = ConfigOf(1, kBlocksPerTask, &cluster);
  int num_clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&num_clusters, kernel, &config);
  if (error == cudaSuccess && num_clusters > 0) *blocks_per_task = kBlocksPerTask;
  return error;
}

}  // namespace

}  // namespace specd
