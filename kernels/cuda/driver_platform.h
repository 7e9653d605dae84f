// MakeCudaPlatform makes the GpuPlatform over libcuda.so.1 for the daemon and libspecd.
//
// It needs no CUDA toolkit to build and no driver to start: the first call looks for the library.
// Safe from any thread.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeCudaPlatform();

}  // namespace specd
