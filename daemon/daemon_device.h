// MakeDaemonPlatform and MakeDaemonBackend make the processors for the daemon's rounds.
//
// The platform has the GPUs that the daemon shares with engines, and each session has a backend.
// The daemon's own definitions are in daemon_gpu.cc. Tests without a device link others.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/gpu_context.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeDaemonPlatform();
// Takes the names that MakeBackend takes.
absl::StatusOr<std::unique_ptr<Backend>> MakeDaemonBackend(std::string_view name);

}  // namespace specd
