// The host entries of the kernels, callable from files that nvcc does not compile. The only
// launches are in the .cu files beside this one, one kernel in each, so that they compile at the
// same time.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/fused_round.h"
#include "kernels/core/round_launch.h"

namespace specd {

// Eight warps share the tiles of a row; more would wait for the ordered combine more than they
// read.
inline constexpr int kThreadsPerBlock = 256;

// Blocks that one multiprocessor is given, where there is work for so many.
inline constexpr int kBlocksPerProcessor = 2;

// Bring a kernel to the device. Otherwise its first launch would, and wait for the device
// meanwhile, which is not allowed in a capture.
cudaError_t LoadFetchKernel();
cudaError_t LoadReadKernel();
cudaError_t LoadRoundKernel();
cudaError_t LoadTransformKernel();

// As GpuDriver's launches of these names say, on `stream`.
cudaError_t EnqueueFetch(const FetchPlan& plan, cudaStream_t stream);
cudaError_t EnqueueRead(const ReadPlan& plan, int32_t num_processors, cudaStream_t stream);
cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds, int32_t num_processors,
                         cudaStream_t stream);
cudaError_t EnqueueTransforms(const TransformBatch& batch, void* workspaces, cudaStream_t stream);

}  // namespace specd
