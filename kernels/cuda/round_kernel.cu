#include <algorithm>

#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"

namespace specd {

namespace {

__global__ void __launch_bounds__(kTilePassThreads, kTilePassBlocks)
    RunRoundKernel(const FusedRound* round) {
  RunFusedRound(CudaThread(), RoundOfBlock(round));
}

}  // namespace

cudaError_t LoadRoundKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, RunRoundKernel);
}

cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds, int32_t num_processors,
                         cudaStream_t stream) {
  constexpr int64_t kWarpsPerBlock = kTilePassThreads / 32;
  const int64_t num_tiles =
      int64_t{WideFor(bounds)} * NumSlots(bounds.max_draft) * NumTiles(bounds.vocab_size);
  const int64_t num_blocks = std::min<int64_t>((num_tiles + kWarpsPerBlock - 1) / kWarpsPerBlock,
                                               int64_t{num_processors} * kTilePassBlocks);
  return Launch(num_blocks, kTilePassThreads, stream, RunRoundKernel, round);
}

}  // namespace specd
