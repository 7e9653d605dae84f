// The kernel's host entry, callable from files that nvcc does not compile. The only launch is in
// verify_kernel.cu.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/round.h"

namespace specd {

// Enqueues one block for each task on `stream`. All pointers in the batch are device memory.
cudaError_t LaunchVerifyChains(const RoundBatch& batch, cudaStream_t stream);

}  // namespace specd
