// A device's primary context, through the driver. Thin on purpose, because only a machine with a
// GPU runs it; what can be decided without one is decided above it (ipc/memory/device_region.h).
// Safe from any thread, as the driver is.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"
#include "kernels/cuda/driver_api.h"

namespace specd {

// Takes over one reference to the device's primary context, and gives it back at the end.
std::unique_ptr<GpuContext> MakeCudaContext(const cuda::DriverApi& api, int device,
                                            cuda::Context context);

}  // namespace specd
