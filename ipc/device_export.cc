#include "ipc/device_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "ipc/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

absl::Status NotDeviceMemory(const GpuResult& result) {
  return MakeError(SPECD_ERROR_REGION, "address",
                   fmt::format("{}; pass the address of a tensor on the GPU (managed and host "
                               "memory cannot be shared this way)",
                               result.text()));
}

// A handle needs no descriptor, so it comes first.
std::optional<GpuMemoryKind> KindOf(const GpuAllocation& allocation) {
  if (allocation.is_ipc_exportable) return GpuMemoryKind::kIpc;
  if (allocation.is_vmm_exportable) return GpuMemoryKind::kVmm;
  if (allocation.is_pool_exportable) return GpuMemoryKind::kPool;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<DeviceExport> ExportDeviceMemory(GpuContext& context,
                                                std::span<const GpuDevice> devices,
                                                GpuAddress address, uint64_t size_bytes) {
  GpuAllocation allocation;
  const GpuResult described = context.Describe(address, &allocation);
  if (!described.ok()) return NotDeviceMemory(described);
  const uint64_t offset_bytes = address - allocation.base;
  const uint64_t room_bytes = allocation.size_bytes - offset_bytes;
  if (size_bytes < 1 || size_bytes > room_bytes) {
    return MakeError(SPECD_ERROR_REGION, "size_bytes",
                     fmt::format("size_bytes = {} is outside 1..{}, what the allocation has behind "
                                 "the address; a tensor that spans several pieces of physical "
                                 "memory cannot be shared as one: allocate it with cudaMalloc "
                                 "(PyTorch: expandable_segments:False)",
                                 size_bytes, room_bytes));
  }
  const std::optional<GpuMemoryKind> kind = KindOf(allocation);
  if (!kind.has_value()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "address",
                     "the memory was allocated so that no other process can map it (the default "
                     "pool of cudaMallocAsync, cuMemCreate without a handle type, or another "
                     "process's memory); allocate it with cudaMalloc (PyTorch: "
                     "PYTORCH_CUDA_ALLOC_CONF=backend:native,expandable_segments:False)");
  }
  GpuExport exported;
  const GpuResult result = context.Export(address, *kind, &exported);
  UniqueFd fd(exported.fd);
  if (!result.ok()) {
    return MakeError(SPECD_ERROR_REGION, "address",
                     fmt::format("the memory cannot be exported: {}; allocate it with cudaMalloc",
                                 result.text()));
  }
  SPECD_CHECK(allocation.device_index < devices.size());
  DeviceExport out;
  out.skip_bytes = offset_bytes % kDeviceAlignmentBytes;
  out.spec = {.kind = static_cast<uint32_t>(*kind),
              .device_uuid = devices[allocation.device_index].uuid,
              .handle = {},
              .base_bytes = allocation.size_bytes,
              .offset_bytes = offset_bytes - out.skip_bytes,
              .size_bytes = size_bytes + out.skip_bytes,
              .buffer_id = allocation.buffer_id,
              .export_pid = static_cast<uint32_t>(getpid())};
  if (*kind != GpuMemoryKind::kVmm) {
    for (const uint8_t byte : exported.handle) out.spec.handle += fmt::format("{:02x}", byte);
  }
  out.fd = std::move(fd);
  return out;
}

absl::Status CheckStillAllocated(GpuContext& context, const DeviceRegionSpec& spec,
                                 GpuAddress address) {
  GpuAllocation allocation;
  const GpuResult described = context.Describe(address, &allocation);
  if (described.ok() && allocation.buffer_id == spec.buffer_id) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_REGION, "buffer_id",
      fmt::format("buffer_id = {} was registered and {}: the memory was freed while it was "
                  "registered; unregister the region, then register the new memory",
                  spec.buffer_id,
                  described.ok() ? fmt::format("{} is there now", allocation.buffer_id)
                                 : std::string("nothing is there now")));
}

}  // namespace specd
