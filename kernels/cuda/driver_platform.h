// The GpuPlatform over libcuda.so.1. It needs no CUDA toolkit to build and no driver to start: the
// library is looked for at the first call. Safe from any thread.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeCudaPlatform();

}  // namespace specd
