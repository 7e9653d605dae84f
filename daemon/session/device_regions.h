// DeviceRegions: the device memory that one session has registered.
//
// Kept apart from the session's other tables, because mapping and unmapping take the driver's time,
// which must not be the verify thread's: everything here has a lock of its own. Any thread. Who
// unregisters or closes must know that no round uses the memory: Session does (session_memory.cc).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/mutex.h"
#include "ipc/base/unique_fd.h"
#include "ipc/memory/device_region.h"

namespace specd {

class DeviceRegions {
 public:
  // Ids of device memory begin here, behind those of host memory.
  static constexpr uint32_t kFirstId = 1 << 16;

  // Without an importer rounds run on the CPU, and every registration is refused.
  explicit DeviceRegions(DeviceImporter* importer) : importer_(importer) {}

  // Control thread only, as the importer is. Returns the id, which is never used again.
  absl::StatusOr<uint32_t> Register(const DeviceRegionSpec& spec, std::span<const UniqueFd> fds,
                                    pid_t peer_pid);
  // The same for memory of this process itself, which needs no importer.
  absl::StatusOr<uint32_t> Adopt(DeviceRegion region);
  // Unmaps: once this has succeeded the engine may free.
  absl::Status Unregister(uint32_t id);
  // Where a region lies, and on which device.
  struct Place {
    RowMemory memory;
    std::string device_uuid;
  };
  // None where the id is nobody's. What it says holds until the region is unregistered or closed,
  // which is for the caller to prevent.
  std::optional<Place> Find(uint32_t id);

  // The session has ended: unmaps everything, and registers nothing more.
  void Close();

 private:
  struct Entry {
    DeviceRegion region;
    DeviceRegionSpec spec;
  };

  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNew(const DeviceRegionSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  DeviceImporter* const importer_;
  Mutex mutex_;
  std::map<uint32_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_id_ ABSL_GUARDED_BY(mutex_) = kFirstId;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace specd
