// These functions load and launch the kernels of tests/support/peer_kernels.h on a real device, in
// the current context. The errors that they return are their own, never those of earlier calls.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/support/peer_kernels.h"

namespace specd {

// Loads the kernel as specd loads its own (kernels/cuda/round_kernels.h).
cudaError_t LoadPeerKernel(PeerKernel kernel);

cudaError_t EnqueuePeerKernel(const PeerLaunch& launch, cudaStream_t stream);

}  // namespace specd
