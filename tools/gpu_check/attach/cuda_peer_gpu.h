// A real device as either process of an attach check takes it, with memory as an engine's
// allocators make it. For the thread that makes it.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

// The first device; `device` is what it is. Null where there is none, and why in *error.
std::unique_ptr<PeerGpu> MakeCudaPeerGpu(GpuDevice* device, GpuResult* error);

}  // namespace specd
