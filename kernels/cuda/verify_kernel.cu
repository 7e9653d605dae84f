#include "kernels/bodies/verify.h"
#include "kernels/bodies/warp_team.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/verify_kernel.h"

namespace specd {

namespace {

// Eight warps share the tiles of a row; more would wait for the ordered combine more than they
// read.
constexpr int kThreadsPerBlock = 256;

// One block verifies one sequence, with its workspace in shared memory: at most 512 tiles of 20
// bytes, well below the 48 KiB that every device gives without asking.
__global__ void __launch_bounds__(kThreadsPerBlock) VerifyChainsKernel(RoundBatch batch) {
  extern __shared__ uint64_t shared_memory[];
  const int32_t i = static_cast<int32_t>(blockIdx.x);
  WarpTeam<CudaThread> team{CudaThread()};
  const ChainWorkspace workspace = ChainWorkspaceAt(shared_memory, batch.target.vocab_size);
  const ChainTask& task = batch.tasks[i];
  TokenId* tokens = batch.tokens + int64_t{i} * batch.tokens_stride;
  const ChainOutcome outcome =
      VerifyChain(team, task, batch.target, batch.draft, workspace, KeyedCoins(task.seed), tokens);
  if (team.leader()) batch.outcomes[i] = outcome;
}

}  // namespace

cudaError_t LaunchVerifyChains(const RoundBatch& batch, cudaStream_t stream) {
  static_assert(ChainWorkspaceBytes(kVocabSizeMax) <= 48 * 1024);
  const auto num_blocks = static_cast<unsigned>(batch.num_tasks);
  const auto shared_bytes = static_cast<size_t>(ChainWorkspaceBytes(batch.target.vocab_size));
  VerifyChainsKernel<<<num_blocks, kThreadsPerBlock, shared_bytes, stream>>>(batch);
  return cudaGetLastError();
}

}  // namespace specd
