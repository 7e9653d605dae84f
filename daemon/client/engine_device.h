// EngineDevice: the GPUs of an engine's process, as libspecd needs them to share device memory.
//
// The driver is loaded when memory is first asked about. Only the context of a device whose memory
// is shared is kept, because an engine has no memory to spare on the others. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/memory/device_export.h"
#include "ipc/memory/device_region.h"
#include "kernels/backend.h"
#include "kernels/core/gpu_context.h"

namespace specd {

// What this process has: libspecd's are in engine_gpu.cc, and tests without a device link others.
std::unique_ptr<GpuPlatform> MakeEnginePlatform();
absl::StatusOr<std::unique_ptr<Backend>> MakeEngineBackend(std::string_view name,
                                                           const BackendOptions& options);

class EngineDevice {
 public:
  // Memory that is to travel to a daemon, or why it cannot.
  absl::StatusOr<DeviceExport> Export(GpuAddress address, uint64_t size_bytes);
  // The same memory for rounds of this process.
  absl::StatusOr<DeviceRegion> Own(GpuAddress address, uint64_t size_bytes);

 private:
  // The context of the device that the address is on, and the allocation around it.
  absl::StatusOr<GpuContext*> Find(GpuAddress address, GpuAllocation* allocation);
  GpuResult ContextOf(size_t device_index, GpuContext** context);

  std::unique_ptr<GpuPlatform> platform_;  // null: not asked for yet
  std::vector<GpuDevice> devices_;
  std::vector<std::unique_ptr<GpuContext>> contexts_;  // by device; null: none is kept
};

}  // namespace specd
