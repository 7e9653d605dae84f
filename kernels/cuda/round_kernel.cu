#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerProcessor)
    RunRoundKernel(const __grid_constant__ FusedRound round) {
  RunFusedRound(CudaThread(), round);
}

}  // namespace

cudaError_t EnqueueRound(const FusedRound& round, int32_t num_processors, cudaStream_t stream) {
  const int64_t num_tiles = int64_t{round.num_rows} * NumTiles(round.batch.target.vocab_size);
  constexpr int64_t kWarpsPerBlock = kThreadsPerBlock / 32;
  const int64_t most = int64_t{num_processors} * kBlocksPerProcessor;
  const int64_t wanted = (num_tiles + kWarpsPerBlock - 1) / kWarpsPerBlock;
  const int64_t num_blocks = wanted < most ? (wanted < 1 ? 1 : wanted) : most;
  RunRoundKernel<<<static_cast<unsigned>(num_blocks), kThreadsPerBlock, 0, stream>>>(round);
  return cudaGetLastError();
}

}  // namespace specd
