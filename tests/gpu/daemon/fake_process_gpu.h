// FakeProcessGpu gives a process a pretended GPU in place of the real one. The daemon and its
// engines use it (fake_daemon_main.cc, fake_daemon_gpu.cc).
//
// The GPU is shared through MPS if CUDA_MPS_PIPE_DIRECTORY names a pipe. SPECD_FAKE_FAULT in the
// environment breaks one thing, by name. Tests then check which process notices.
#pragma once

#include <memory>
#include <string_view>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/borrowed_gpu.h"

namespace specd {

// The GPU lives as long as the process.
FakeGpuContext& FakeProcessGpu();

// A platform of its one device. If `wrap` is not null, it makes the contexts from that GPU.
using WrapGpu = std::unique_ptr<GpuContext> (*)(GpuContext* gpu);
std::unique_ptr<GpuPlatform> MakeFakeProcessPlatform(WrapGpu wrap = nullptr);

bool HasFakeFault(std::string_view name);

}  // namespace specd
