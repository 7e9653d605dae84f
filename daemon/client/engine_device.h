// EngineDevice describes the device memory of an engine's process, so that libspecd can share it.
//
// The driver is loaded when memory is first asked about. EngineDevice keeps the context of a device
// only if its memory is shared, because an engine has no memory to spare on other devices. One
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/memory/device_export.h"
#include "ipc/memory/device_region.h"
#include "kernels/backend_registry.h"
#include "kernels/core/gpu_context.h"

namespace specd {

// The GPUs of this process, and the backends that run its rounds and library calls. libspecd's
// definitions are in engine_gpu.cc; tests without a device link others.
std::unique_ptr<GpuPlatform> MakeEnginePlatform();
BackendRegistry& EngineBackends();

// Whether the device that a uri "embedded:device" names has a backend, and that one takes the CUDA
// stream if there is one. The error is about the uri or about cuda_stream.
absl::Status CheckEmbedded(const std::string& uri, const std::string& device,
                           const void* cuda_stream);
// The error of a CUDA stream that rounds elsewhere cannot use.
absl::Status NoCudaStream(const std::string& uri);

class EngineDevice {
 public:
  // Describes memory for a daemon, or says why the memory cannot travel.
  absl::StatusOr<DeviceExport> Export(GpuAddress address, uint64_t size_bytes);
  // Describes the same memory for rounds of this process.
  absl::StatusOr<DeviceRegion> Own(GpuAddress address, uint64_t size_bytes);

 private:
  // Finds the context of the device that the address is on, and the allocation around the address.
  absl::StatusOr<GpuContext*> Find(GpuAddress address, GpuAllocation* allocation);
  GpuResult ContextOf(size_t device_index, GpuContext** context);

  std::unique_ptr<GpuPlatform> platform_;  // null: not asked for yet
  std::vector<GpuDevice> devices_;
  std::vector<std::unique_ptr<GpuContext>> contexts_;  // by device; null: none is kept
};

}  // namespace specd
