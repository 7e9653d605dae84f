#include "kernels/cuda/capture_check.h"

#include <fmt/format.h>

namespace specd {

absl::Status CheckNotCapturing(GpuDriver* driver, std::string_view why, std::string_view remedy) {
  bool is_capturing = false;
  const GpuResult result = driver->IsCapturing(&is_capturing);
  if (!result.ok()) {
    return absl::InternalError(
        fmt::format("the GPU does not say whether cuda_stream is capturing: {}", result.text()));
  }
  if (!is_capturing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("cuda_stream is capturing a graph, and {}; {}", why, remedy));
}

}  // namespace specd
