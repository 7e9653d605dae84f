// MakeDaemonPlatform and DaemonBackends give the processors for the daemon's rounds.
//
// The platform has the GPUs that the daemon shares with engines, and each session has a backend.
// The daemon's own definitions are in daemon_gpu.cc. Tests without a device link others.
#pragma once

#include <memory>

#include "kernels/backend_registry.h"
#include "kernels/core/gpu_context.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeDaemonPlatform();
BackendRegistry& DaemonBackends();

}  // namespace specd
