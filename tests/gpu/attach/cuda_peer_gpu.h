// MakeCudaPeerGpu gives either process of an attach check a real device, with memory as engines'
// allocators make it. The thread that makes the device uses it.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

// Opens the first device and describes it in *device. If there is none, the result is null and
// *error says why.
std::unique_ptr<PeerGpu> MakeCudaPeerGpu(GpuDevice* device, GpuResult* error);

}  // namespace specd
