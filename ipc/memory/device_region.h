// DeviceRegion holds an engine's device memory for the daemon; DeviceImporter imports it.
//
// The engine describes an allocation (ipc/memory/device_export.h does that for it), and the daemon
// maps it through a GpuContext. An outsider wrote every number and every byte of the description.
// An error names field, value and remedy, and leaves nothing mapped. The memory belongs to the
// engine, which may free it only once the region has been closed.
//
// One thread at a time uses an importer. Any thread may close a region, which keeps the context
// that it needs for that.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/memory_specs.h"
#include "ipc/base/unique_fd.h"
#include "ipc/memory/region.h"
#include "kernels/core/gpu_context.h"

namespace specd {

// Kernels read 16 bytes at a time. A tensor may begin at any element of a region that is aligned.
inline constexpr uint64_t kDeviceAlignmentBytes = 16;

// Tells whether two texts name the same device; false if one of them is no UUID.
bool IsSameDevice(std::string_view uuid, std::string_view other);

class DeviceRegion {
 public:
  // Holds memory of this process itself: nothing is mapped, and nothing will be unmapped.
  DeviceRegion(GpuAddress address, uint64_t size_bytes, std::string device_uuid)
      : address_(address), size_bytes_(size_bytes), device_uuid_(std::move(device_uuid)) {}
  DeviceRegion(DeviceRegion&& other) noexcept;
  DeviceRegion& operator=(DeviceRegion&&) = delete;
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;
  ~DeviceRegion();

  // Unmaps the memory; afterwards the engine may free it. Returns an error if the driver could not
  // unmap, which breaks the context rather than the region. REQUIRES: no enqueued work touches the
  // memory.
  absl::Status Close();

  // The region at the device's address. The CPU must not read it.
  RowMemory memory() const {
    return {reinterpret_cast<const void*>(address_), size_bytes_, MemorySpace::kDevice};
  }
  const std::string& device_uuid() const { return device_uuid_; }

 private:
  friend class DeviceImporter;
  DeviceRegion(std::shared_ptr<GpuContext> context, GpuMapping mapping,
               const DeviceRegionSpec& spec)
      : context_(std::move(context)),
        mapping_(std::move(mapping)),
        address_(mapping_.address + spec.offset_bytes),
        size_bytes_(spec.size_bytes),
        device_uuid_(spec.device_uuid) {}

  std::shared_ptr<GpuContext> context_;  // null: closed or never mapped
  GpuMapping mapping_;
  GpuAddress address_;
  uint64_t size_bytes_;
  std::string device_uuid_;
};

class DeviceImporter {
 public:
  // The platform must outlive the importer and its regions. If the driver reports an error that
  // every later call will report too, the importer calls `on_device_failure` with the driver's
  // words. The process must then be restarted.
  DeviceImporter(GpuPlatform* platform, std::function<void(std::string_view why)> on_device_failure)
      : platform_(platform), on_device_failure_(std::move(on_device_failure)) {}

  // `peer_pid` is the engine's pid as the kernel knows it, or 0 if this process cannot see it. The
  // descriptors `fds` came with the message.
  absl::StatusOr<DeviceRegion> Import(const DeviceRegionSpec& spec, std::span<const UniqueFd> fds,
                                      pid_t peer_pid);

 private:
  absl::StatusOr<size_t> FindDevice(const std::string& uuid);
  absl::StatusOr<std::shared_ptr<GpuContext>> ContextOf(size_t device_index);
  absl::Status Explain(const GpuResult& result, GpuContext& context, GpuMemoryKind kind);

  GpuPlatform* const platform_;
  const std::function<void(std::string_view why)> on_device_failure_;
  std::vector<GpuDevice> devices_;                     // filled when first asked for
  std::vector<std::shared_ptr<GpuContext>> contexts_;  // by device; null: not opened yet
};

}  // namespace specd
