#include "kernels/backend.h"

#include <fmt/format.h>

#include "kernels/cpu/cpu_backend.h"
#if defined(SPECD_HAVE_CUDA)
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_driver.h"
#endif

namespace specd {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name) {
  if (name == "cpu") return MakeCpuBackend();
  if (name == "cuda") {
#if defined(SPECD_HAVE_CUDA)
    return MakeCudaBackend(MakeCudaDriver());
#else
    return absl::UnimplementedError(
        "backend \"cuda\" is not in this build, which was made without nvcc; use \"cpu\", or build "
        "again with nvcc on PATH and -DSPECD_CUDA=ON");
#endif
  }
  return absl::InvalidArgumentError(
      fmt::format("backend \"{}\" is unknown; the backends are \"cpu\" and \"cuda\"", name));
}

}  // namespace specd
