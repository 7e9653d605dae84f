// MakeCudaContext gives access to a device's primary context for MakeCudaPlatform, through the
// driver.
//
// The class is thin on purpose, because only a machine with a GPU runs it.
// ipc/memory/device_region.h makes the decisions that need no GPU. Safe from any thread, as the
// driver is.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"
#include "kernels/cuda/driver_api.h"

namespace specd {

// Takes over one reference to the device's primary context, and releases it in the destructor.
std::unique_ptr<GpuContext> MakeCudaContext(const cuda::DriverApi& api, int device,
                                            cuda::Context context);

}  // namespace specd
