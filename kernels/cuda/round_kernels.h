// The host entries of the kernels, callable from files that nvcc does not compile. The only
// launches are in the .cu files beside this one, one kernel in each, so that they compile at the
// same time.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/round.h"

namespace specd {

// Eight warps share the tiles of a row; more would wait for the ordered combine more than they
// read.
inline constexpr int kThreadsPerBlock = 256;

// As GpuDriver::LaunchChains and LaunchTransforms say, on `stream`.
cudaError_t EnqueueChains(const RoundBatch& batch, int32_t max_draft, void* workspaces,
                          cudaStream_t stream);
cudaError_t EnqueueTransforms(const TransformBatch& batch, void* workspaces, cudaStream_t stream);

}  // namespace specd
