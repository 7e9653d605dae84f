// MakeCudaBackend chooses a device and makes a CudaBackend on it.
//
// A registry calls it through CudaBackendEntry; tests call it with a pretended driver. Any thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/backend_registry.h"
#include "kernels/core/gpu_driver.h"

namespace specd {

// Uses the device that BackendOptions describes. If there is no driver or no device, the error is
// UNIMPLEMENTED, and NOT_FOUND if none has the index; for a bad CUDA stream it is INVALID_ARGUMENT.
// Only FAILED_PRECONDITION means that a later try may succeed: the CUDA stream is capturing.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver,
                                                         const BackendOptions& options = {});

// "cuda", as a registry has it. `make_driver` returns null in a build without nvcc.
BackendEntry CudaBackendEntry(std::function<std::unique_ptr<GpuDriver>()> make_driver);

}  // namespace specd
