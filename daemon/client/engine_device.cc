#include "daemon/client/engine_device.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status NoDeviceMemory(GpuAddress address, const GpuResult& result) {
  return MakeError(SPECD_ERROR_REGION, "address",
                   fmt::format("address = {:#x}: {}; pass the address of a tensor on the GPU "
                               "(managed and host memory cannot be shared this way)",
                               address, result.text()));
}

}  // namespace

absl::Status NoCudaStream(const std::string& uri) {
  return MakeError(SPECD_ERROR_UNSUPPORTED, "cuda_stream",
                   fmt::format("cuda_stream is for embedded:cuda, and uri = \"{}\" runs rounds "
                               "elsewhere; leave it NULL",
                               uri));
}

absl::Status CheckEmbedded(const std::string& uri, const std::string& device,
                           const void* cuda_stream) {
  const absl::StatusOr<const BackendEntry*> entry = EngineBackends().Find(device);
  if (!entry.ok()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri",
                     fmt::format("uri = \"{}\": {}", uri, std::string(entry.status().message())));
  }
  if (cuda_stream == nullptr || (*entry)->takes_cuda_stream) return absl::OkStatus();
  return NoCudaStream(uri);
}

absl::StatusOr<DeviceExport> EngineDevice::Export(GpuAddress address, uint64_t size_bytes) {
  GpuAllocation allocation;
  const absl::StatusOr<GpuContext*> context = Find(address, &allocation);
  if (!context.ok()) return context.status();
  return ExportDeviceMemory(**context, devices_, address, size_bytes);
}

absl::StatusOr<DeviceRegion> EngineDevice::Own(GpuAddress address, uint64_t size_bytes) {
  GpuAllocation first;
  const absl::StatusOr<GpuContext*> context = Find(address, &first);
  if (!context.ok()) return context.status();
  const absl::StatusOr<std::vector<GpuAllocation>> range =
      DescribeRange(**context, address, size_bytes);
  if (!range.ok()) return range.status();
  return DeviceRegion(address, size_bytes, devices_[first.device_index].uuid);
}

absl::StatusOr<GpuContext*> EngineDevice::Find(GpuAddress address, GpuAllocation* allocation) {
  if (platform_ == nullptr) {
    std::unique_ptr<GpuPlatform> platform = MakeEnginePlatform();
    const GpuResult listed = platform->ListDevices(&devices_);
    if (!listed.ok()) {
      return MakeError(SPECD_ERROR_UNSUPPORTED, "address",
                       fmt::format("device memory cannot be shared: {}; or share rows in memory "
                                   "from specd_alloc",
                                   listed.text()));
    }
    contexts_.resize(devices_.size());
    platform_ = std::move(platform);
  }
  GpuResult result = GpuResult::Error("no device is visible", kGpuNoDevice);
  // The driver knows any device's memory in any context. The devices in use are asked first.
  for (const bool is_kept : {true, false}) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if ((contexts_[i] != nullptr) != is_kept) continue;
      GpuContext* context = nullptr;
      result = ContextOf(i, &context);
      if (result.ok()) result = context->Describe(address, allocation);
      const bool is_found = result.ok();
      if (is_found) result = ContextOf(allocation->device_index, &context);
      if (!is_kept && !(is_found && allocation->device_index == i)) contexts_[i].reset();
      if (is_found && result.ok()) return context;
    }
  }
  return NoDeviceMemory(address, result);
}

GpuResult EngineDevice::ContextOf(size_t device_index, GpuContext** context) {
  std::unique_ptr<GpuContext>& kept = contexts_[device_index];
  const GpuResult result =
      kept != nullptr ? GpuResult::Ok() : platform_->OpenContext(device_index, &kept);
  *context = kept.get();
  return result;
}

}  // namespace specd
