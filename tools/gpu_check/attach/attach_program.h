// The command line of specd-gpu-attach, apart from which GPU it is for: a real one, or in tests the
// pretended one. Called once in a process, by its main thread.
#pragma once

#include <functional>
#include <memory>

#include "kernels/core/gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

// Makes this process's GPU; null where there is none, and why in the result.
using MakePeerGpu = std::function<std::unique_ptr<PeerGpu>(GpuDevice* device, GpuResult* error)>;

// The exit status: 0 passed, skipped or observed, 1 failed, 2 the arguments, 3 no device.
int RunAttachProgram(int argc, char** argv, const MakePeerGpu& make_gpu);

}  // namespace specd
