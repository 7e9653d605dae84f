#include "kernels/bodies/verify.h"
#include "kernels/bodies/warp_team.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

// One block does one sequence's task.
__global__ void __launch_bounds__(kThreadsPerBlock)
    RunTasksKernel(RoundBatch batch, int32_t max_draft, char* workspaces) {
  const int32_t vocab_size = batch.target.vocab_size;
  const int64_t i = blockIdx.x;
  WarpTeam<CudaThread> team{CudaThread()};
  const ChainWorkspace workspace = ChainWorkspaceAt(
      workspaces + i * ChainWorkspaceBytes(vocab_size, max_draft), vocab_size, max_draft);
  const ChainTask& task = batch.tasks[i];
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  const ChainOutcome outcome = RunTask(team, batch, task, workspace, coins, OutputOf(batch, i));
  if (team.leader()) batch.outcomes[i] = outcome;
}

}  // namespace

cudaError_t EnqueueChains(const RoundBatch& batch, int32_t max_draft, void* workspaces,
                          cudaStream_t stream) {
  RunTasksKernel<<<static_cast<unsigned>(batch.num_tasks), kThreadsPerBlock, 0, stream>>>(
      batch, max_draft, static_cast<char*>(workspaces));
  return cudaGetLastError();
}

}  // namespace specd
