// MakeDaemonPlatform and DaemonBackends over the real processors of this machine. They have a file
// of their own, so that tests can link pretended processors in its place.
#include "daemon/daemon_device.h"
#include "kernels/cuda/driver_platform.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeDaemonPlatform() { return MakeCudaPlatform(); }

BackendRegistry& DaemonBackends() { return ProcessBackends(); }

}  // namespace specd
