// What the daemon's rounds run on: the GPUs that it shares with engines, and a processor for each
// session. Its own are in daemon_gpu.cc, and tests without a device link others.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/gpu_context.h"

namespace specd {

std::unique_ptr<GpuPlatform> MakeDaemonPlatform();
// As MakeBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeDaemonBackend(std::string_view name);

}  // namespace specd
