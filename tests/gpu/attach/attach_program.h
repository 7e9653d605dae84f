// RunAttachProgram is the command line of specd-gpu-attach for any GPU: a real one, or a pretended
// one in tests. The main thread of a process calls it once.
#pragma once

#include <functional>
#include <memory>

#include "kernels/core/gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

// Makes this process's GPU. If there is none, the result is null and *error says why.
using MakePeerGpu = std::function<std::unique_ptr<PeerGpu>(GpuDevice* device, GpuResult* error)>;

// Returns the exit status: 0 passed, skipped or observed; 1 failed; 2 wrong arguments; 3 no device.
int RunAttachProgram(int argc, char** argv, const MakePeerGpu& make_gpu);

}  // namespace specd
