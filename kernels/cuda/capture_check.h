// CheckNotCapturing refuses a call that a capture of the caller's CUDA stream would forbid.
//
// Call it before a wait on that CUDA stream, or before work that no capture allows.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/gpu_driver.h"

namespace specd {

// FAILED_PRECONDITION while the CUDA stream captures: the text says why, and what to do.
absl::Status CheckNotCapturing(GpuDriver* driver, std::string_view why, std::string_view remedy);

}  // namespace specd
