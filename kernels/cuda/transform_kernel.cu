#include "kernels/bodies/transform.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/warps/warp_team.h"

namespace specd {

namespace {

// Each block transforms one row.
__global__ void __launch_bounds__(kThreadsPerBlock)
    TransformRowsKernel(TransformBatch batch, char* workspaces) {
  const int32_t vocab_size = batch.source.vocab_size;
  const int64_t i = blockIdx.x;
  WarpTeam<CudaThread> team{CudaThread()};
  const TaskWorkspace workspace =
      TaskWorkspaceAt(workspaces + i * TaskWorkspaceBytes(vocab_size, 0), vocab_size, 0);
  const RowTransform& transform = batch.rows[i];
  const OutcomeStatus status =
      TransformRow(team, RowAt(batch.source, transform.row), transform, workspace.target);
  if (team.leader()) batch.statuses[i] = status;
}

}  // namespace

cudaError_t LoadTransformKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, TransformRowsKernel);
}

cudaError_t EnqueueTransforms(const TransformBatch& batch, void* workspaces, cudaStream_t stream) {
  return Launch(batch.num_rows, kThreadsPerBlock, stream, TransformRowsKernel, batch,
                static_cast<char*>(workspaces));
}

}  // namespace specd
