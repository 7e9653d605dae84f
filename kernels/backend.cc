#include "kernels/backend.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_driver.h"

namespace specd {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const BackendOptions& options) {
  if (name == "cpu") return MakeCpuBackend();
  if (name == "cuda") {
    std::unique_ptr<GpuDriver> driver = MakeCudaDriver();
    if (driver != nullptr) return MakeCudaBackend(std::move(driver), options.cuda_stream);
    return absl::UnimplementedError(
        "backend \"cuda\" is not in this build, which was made without nvcc; use \"cpu\", or build "
        "again with nvcc on PATH and -DSPECD_CUDA=ON");
  }
  return absl::InvalidArgumentError(
      fmt::format("backend \"{}\" is unknown; the backends are \"cpu\" and \"cuda\"", name));
}

}  // namespace specd
