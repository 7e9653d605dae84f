// The pretended GPU of a process whose program looks for the real one: of the daemon and of engines
// that attach to it (gpu_daemon_fake_main.cc, fake_daemon_gpu.cc).
//
// It is shared through MPS where CUDA_MPS_PIPE_DIRECTORY names a pipe. SPECD_FAKE_FAULT in the
// environment breaks one thing, by name, for tests of who notices.
#pragma once

#include <memory>
#include <string_view>

#include "tests/support/borrowed_gpu_context.h"
#include "tests/support/fake_gpu_context.h"

namespace specd {

// For the life of the process.
FakeGpuContext& FakeProcessGpu();

// Of its one device; contexts are what `wrap` makes of that GPU, where that is not null.
using WrapGpu = std::unique_ptr<GpuContext> (*)(GpuContext* gpu);
std::unique_ptr<GpuPlatform> MakeFakeProcessPlatform(WrapGpu wrap = nullptr);

bool HasFakeFault(std::string_view name);

}  // namespace specd
