// MakeCudaProbes makes the GpuProbes over the CUDA runtime for specd-bench.
//
// The probes belong to the thread that uses the driver.
#pragma once

#include <memory>

#include "kernels/core/gpu_driver.h"
#include "tools/bench/probes/gpu_probes.h"

namespace specd::bench {

// The driver is one of MakeCudaDriver and outlives the probes. Null in a build without nvcc.
std::unique_ptr<GpuProbes> MakeCudaProbes(GpuDriver* driver);

}  // namespace specd::bench
