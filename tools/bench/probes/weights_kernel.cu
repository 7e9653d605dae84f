// A benchmark compares the polynomial exp2 with the hardware's: it runs only the tile pass over
// plain rows, once with each. ex2.approx is used in this file alone and never for an answer: its
// bits are the device's.
#include <algorithm>

#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/warps/tile_pass.h"
#include "tools/bench/probes/probe_kernels.h"

namespace specd::bench {

namespace {

struct ApproximateWeight {
  float max;
  float scale;
  __device__ __forceinline__ float operator()(float x) const {
    float weight;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"((x - max) * scale));
    return weight;
  }
};

template <typename Weight>
__global__ void __launch_bounds__(kTilePassThreads, kTilePassBlocks)
    SumWeightsKernel(WeighPlan plan) {
  const CudaThread thread;
  WarpTeam<LoneWarp<CudaThread>> team{LoneWarp<CudaThread>(thread)};
  const int32_t num_warps = thread.num_warps() * thread.num_blocks();
  const Parts parts(
      {.vocab_size = plan.vocab_size, .num_rows = plan.num_rows, .num_warps = num_warps});
  const int32_t num_parts = plan.num_rows * parts.parts_per_row;
  for (int32_t part = thread.warp() * thread.num_blocks() + thread.block(); part < num_parts;
       part += num_warps) {
    const int32_t row = part / parts.parts_per_row;
    const RowView view{plan.rows[row], plan.dtype, plan.vocab_size, {}};
    const RowStats stats = AheadAt(plan.workspaces, row, plan.vocab_size).stats;
    const int32_t begin = part % parts.parts_per_row * parts.tiles_per_part;
    const int32_t end = begin + parts.tiles_per_part;
    for (int32_t t = begin; t < (end < parts.num_tiles ? end : parts.num_tiles); ++t) {
      typename WarpTeam<LoneWarp<CudaThread>>::Tile tile;
      team.Load(view, t, kAllSteps, Identity{}, &tile);
      NoteTile<Weight>(team, tile, plan.scale, true, t, stats);
    }
  }
}

}  // namespace

cudaError_t LoadWeightsKernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, SumWeightsKernel<WeightFunction>);
  if (error != cudaSuccess) return error;
  return cudaFuncGetAttributes(&attributes, SumWeightsKernel<ApproximateWeight>);
}

cudaError_t EnqueueWeights(const WeighPlan& plan, const DeviceShape& device, cudaStream_t stream) {
  constexpr int64_t kWarpsPerBlock = kTilePassThreads / 32;
  const int64_t num_tiles = int64_t{plan.num_rows} * NumTiles(plan.vocab_size);
  const int64_t num_blocks =
      std::clamp<int64_t>((num_tiles + kWarpsPerBlock - 1) / kWarpsPerBlock, 1,
                          int64_t{device.num_processors} * device.tile_pass_blocks);
  return Launch(
      num_blocks, kTilePassThreads, stream,
      plan.approximate ? SumWeightsKernel<ApproximateWeight> : SumWeightsKernel<WeightFunction>,
      plan);
}

}  // namespace specd::bench
