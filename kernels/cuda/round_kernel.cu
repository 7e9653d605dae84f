#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock) RunRoundKernel(FusedRound round) {
  RunFusedRound(CudaThread(), round);
}

}  // namespace

cudaError_t EnqueueRound(const FusedRound& round, int32_t num_processors, cudaStream_t stream) {
  constexpr int32_t kTilesPerItem = kThreadsPerBlock / 32;
  const int64_t items_per_row =
      (NumTiles(round.batch.target.vocab_size) + kTilesPerItem - 1) / kTilesPerItem;
  const int64_t num_items = round.num_rows * items_per_row;
  const int64_t most = int64_t{num_processors} * kBlocksPerProcessor;
  const auto num_blocks = static_cast<unsigned>(num_items < most ? num_items : most);
  RunRoundKernel<<<num_blocks, kThreadsPerBlock, 0, stream>>>(round);
  return cudaGetLastError();
}

}  // namespace specd
