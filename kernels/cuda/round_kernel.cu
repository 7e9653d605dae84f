#include <algorithm>

#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"
#include "kernels/warps/fused_round.h"

namespace specd {

namespace {

// Called through a pointer that could change. If ptxas knew the function, it would count the
// registers of all functions that this one calls. It then spilled the tiles of the functions that
// call none.
using FinishFunction = void (*)(const FusedRound* round, int32_t row);
__device__ void Finish(const FusedRound* round, int32_t row) {
  JudgeAndDecide(CudaThread(), *round, row);
}
__device__ volatile FinishFunction finish_function = Finish;

static_assert(kTilePassThreads <= 32 * CudaThread::kSharingWarpsMax);

// RunFusedRound.
__global__ void __launch_bounds__(kTilePassThreads, kTilePassBlocks)
    RunRoundKernel(const FusedRound* round) {
  const FusedRound& of_block = RoundOfBlock(round);
  RunTilePass(CudaThread(), of_block, [&](int32_t row) { finish_function(&of_block, row); });
}

}  // namespace

cudaError_t LoadRoundKernel(DeviceShape* device) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, RunRoundKernel);
  if (error != cudaSuccess) return error;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&device->tile_pass_blocks, RunRoundKernel,
                                                       kTilePassThreads, 0);
}

cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds,
                         const DeviceShape& device, cudaStream_t stream) {
  constexpr int64_t kWarpsPerBlock = kTilePassThreads / 32;
  const int64_t num_tiles =
      int64_t{WideFor(bounds)} * NumTaskRows(bounds.max_draft) * NumTiles(bounds.vocab_size);
  const int64_t num_blocks =
      std::min<int64_t>((num_tiles + kWarpsPerBlock - 1) / kWarpsPerBlock,
                        int64_t{device.num_processors} * device.tile_pass_blocks);
  return Launch(num_blocks, kTilePassThreads, stream, RunRoundKernel, round);
}

}  // namespace specd
