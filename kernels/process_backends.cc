// ProcessBackends and MakeBackend. They have a file of their own, because a plugin links the other
// functions of backend.h and must not bring the processors along.
#include "kernels/backend_registry.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/make_cuda_backend.h"

namespace specd {

BackendRegistry& ProcessBackends() {
  // Never destroyed: a thread may still make a backend while the process ends.
  static auto* const backends =
      new BackendRegistry({CpuBackendEntry(), CudaBackendEntry(&MakeCudaDriver)});
  return *backends;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const BackendOptions& options) {
  return ProcessBackends().Make(device, options);
}

}  // namespace specd
