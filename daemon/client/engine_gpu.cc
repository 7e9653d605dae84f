// MakeEnginePlatform and EngineBackends over the real GPU of the process. They have a file of their
// own, so that tests can link a pretended GPU in its place.
#include "daemon/client/engine_device.h"
#include "kernels/cuda/driver_platform.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeEnginePlatform() { return MakeCudaPlatform(); }

BackendRegistry& EngineBackends() { return ProcessBackends(); }

}  // namespace specd
