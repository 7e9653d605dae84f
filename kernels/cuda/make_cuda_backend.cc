#include "kernels/cuda/make_cuda_backend.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "kernels/cuda/capture_check.h"
#include "kernels/cuda/cuda_backend.h"

namespace specd {
namespace {

// Rows of 64 sequences with 8 drafts each at V = 128k in bf16 fit. Larger rounds take more pieces.
constexpr int64_t kDefaultUploadBytes = int64_t{512} << 20;

// Has the driver use the caller's CUDA stream, and finds its device.
absl::Status UseStream(GpuDriver* driver, const BackendOptions& options, size_t* device) {
  const GpuResult result = driver->UseStream(options.cuda_stream, device);
  if (!result.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("cuda_stream is not a stream of this process: {}; give a cudaStream_t that is "
                    "open, or NULL for one of specd's own",
                    result.text()));
  }
  if (options.device_index.value_or(*device) != *device) {
    return absl::InvalidArgumentError(
        fmt::format("cuda_stream is of device {}, and rounds are to run on \"cuda:{}\"; give a "
                    "stream of that device, or name \"cuda\"",
                    *device, *options.device_index));
  }
  // Loading a kernel may be forbidden while any CUDA stream of the process captures. The caller's
  // CUDA stream is the only one that can be asked; the caller must take care of others.
  return CheckNotCapturing(driver, "kernels cannot be loaded onto its device meanwhile",
                           "open the engine before the capture begins, or after it has ended");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<GpuDriver> driver,
                                                         const BackendOptions& options) {
  std::vector<GpuDevice> devices;
  size_t device = options.device_index.value_or(0);
  GpuResult result = driver->ListDevices(&devices);
  if (result.ok() && devices.empty()) result = GpuResult::Error("no device is visible");
  if (result.ok() && device >= devices.size()) {
    return absl::NotFoundError(fmt::format(
        "device \"cuda:{}\" is not there: this process sees devices 0 .. {}; name one of them, or "
        "change CUDA_VISIBLE_DEVICES",
        device, devices.size() - 1));
  }
  if (result.ok() && options.cuda_stream != nullptr) {
    const absl::Status usable = UseStream(driver.get(), options, &device);
    if (!usable.ok()) return usable;
  }
  if (result.ok()) result = driver->UseDevice(device);
  if (!result.ok()) {
    return absl::UnimplementedError(fmt::format(
        "backend \"cuda\" needs an NVIDIA driver and a device: {}; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or use \"cpu\"",
        result.text()));
  }
  return std::make_unique<CudaBackend>(std::move(driver), kDefaultUploadBytes,
                                       devices[device].uuid);
}

BackendEntry CudaBackendEntry(std::function<std::unique_ptr<GpuDriver>()> make_driver) {
  return {.name = "cuda",
          .has_devices = true,
          .takes_cuda_stream = true,
          .is_own = true,
          .make = [make_driver = std::move(make_driver)](
                      const BackendOptions& options) -> absl::StatusOr<std::unique_ptr<Backend>> {
            std::unique_ptr<GpuDriver> driver = make_driver();
            if (driver != nullptr) return MakeCudaBackend(std::move(driver), options);
            return absl::UnimplementedError(
                "backend \"cuda\" is not in this build, which was made without nvcc; use \"cpu\", "
                "or build again with nvcc on PATH and -DSPECD_CUDA=ON");
          }};
}

}  // namespace specd
