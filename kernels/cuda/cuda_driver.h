// The GpuDriver over the CUDA runtime. The runtime is linked statically and looks for the driver
// library only when it is first called, so a binary with CUDA inside starts on machines without.
#pragma once

#include <memory>

#include "kernels/core/gpu_driver.h"

namespace specd {

// Null in a build without nvcc.
std::unique_ptr<GpuDriver> MakeCudaDriver();

}  // namespace specd
