// MakeNamedBackend makes a backend of this machine by its name.
//
// The names are "cpu" (the widest instruction set of this processor), "scalar" (the CPU's code
// without vector instructions), "emulated" (a CUDA block on the host) and "cuda". A program that
// calls it holds the CUDA kernels.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace specd::replay {

// The backends that this build has and this machine can run.
std::vector<std::string> BackendsHere();

// An error names the backend, the reason, and those that are here.
absl::StatusOr<std::unique_ptr<Backend>> MakeNamedBackend(std::string_view name);

}  // namespace specd::replay
