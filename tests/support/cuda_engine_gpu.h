// OpenCudaEngineGpu gives a check on a real device the GPU of an engine, over libcuda.
//
// Any thread may call. A call makes the device's primary context current and restores the caller's.
#pragma once

#include <memory>

#include "tests/support/engine_gpu.h"

namespace specd {

// Opens the first device and describes it in *device. If there is none, the result is null and
// *error says why.
std::unique_ptr<EngineGpu> OpenCudaEngineGpu(GpuDevice* device, GpuResult* error);

}  // namespace specd
