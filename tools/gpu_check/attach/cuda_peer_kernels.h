// The kernels of tests/support/peer_kernels.h on a real device, in the context that is current.
// Their errors are the call's own and never those of earlier ones.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/support/peer_kernels.h"

namespace specd {

// Loads it, as specd does with its own (kernels/cuda/round_kernels.h).
cudaError_t LoadPeerKernel(PeerKernel kernel);

cudaError_t EnqueuePeerKernel(const PeerLaunch& launch, cudaStream_t stream);

}  // namespace specd
