// MakeEnginePlatform and MakeEngineBackend over the real GPU of the process. They have a file of
// their own, so that tests can link a pretended GPU in its place.
#include "daemon/client/engine_device.h"
#include "kernels/cuda/driver_platform.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeEnginePlatform() { return MakeCudaPlatform(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeEngineBackend(std::string_view name,
                                                           const BackendOptions& options) {
  return MakeBackend(name, options);
}

}  // namespace specd
