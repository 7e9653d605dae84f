#include "kernels/bodies/fused_round.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

static_assert(sizeof(FusedRound) % sizeof(uint32_t) == 0);

// The round lies in device memory, so that a captured launch does whatever round is there. Each
// block takes a copy that is as near as an argument would be.
__global__ void __launch_bounds__(kThreadsPerBlock) RunRoundKernel(const FusedRound* round) {
  constexpr int kWords = sizeof(FusedRound) / sizeof(uint32_t);
  __shared__ alignas(FusedRound) uint32_t words[kWords];
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kThreadsPerBlock) {
    words[i] = reinterpret_cast<const uint32_t*>(round)[i];
  }
  __syncthreads();
  RunFusedRound(CudaThread(), *reinterpret_cast<const FusedRound*>(words));
}

}  // namespace

cudaError_t LoadRoundKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, RunRoundKernel);
}

cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds, int32_t num_processors,
                         cudaStream_t stream) {
  constexpr int32_t kTilesPerItem = kThreadsPerBlock / 32;
  const int64_t items_per_row = (NumTiles(bounds.vocab_size) + kTilesPerItem - 1) / kTilesPerItem;
  const int64_t num_items = int64_t{bounds.num_tasks} * NumSlots(bounds.max_draft) * items_per_row;
  const int64_t most = int64_t{num_processors} * kBlocksPerProcessor;
  const auto num_blocks = static_cast<unsigned>(num_items < most ? num_items : most);
  RunRoundKernel<<<num_blocks, kThreadsPerBlock, 0, stream>>>(round);
  return cudaGetLastError();
}

}  // namespace specd
