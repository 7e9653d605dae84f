// MakeCudaDriver makes the GpuDriver over the CUDA runtime for the backend "cuda" and specd-bench.
//
// The runtime is linked statically and looks for the driver library only at its first call. A
// binary with CUDA inside therefore starts on machines without a driver.
#pragma once

#include <memory>

#include "kernels/core/gpu_driver.h"

namespace specd {

// Null in a build without nvcc.
std::unique_ptr<GpuDriver> MakeCudaDriver();

}  // namespace specd
