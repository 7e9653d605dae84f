// DeviceRegions holds the device memory that one session has registered.
//
// Mapping and unmapping take the driver's time, and the verify thread must not wait for it. The
// table therefore has a lock of its own and lies apart from the session's other tables. Any thread.
// REQUIRES: the caller of Unregister or Close knows that no round uses the memory; SessionMemory
// and Session know it.
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
  // Ids of device memory begin here, after those of host memory.
  static constexpr uint32_t kFirstId = 1 << 16;

  // Without an importer rounds run on the CPU, and every registration is refused.
  explicit DeviceRegions(DeviceImporter* importer) : importer_(importer) {}

  // Called by the control thread only, as the importer is. Returns the id, which is never used
  // again.
  absl::StatusOr<uint32_t> Register(const DeviceRegionSpec& spec, std::span<const UniqueFd> fds,
                                    pid_t peer_pid);
  // Registers memory of this process itself, which needs no importer.
  absl::StatusOr<uint32_t> Adopt(DeviceRegion region);
  // Unmaps the region. After success the engine may free the memory.
  absl::Status Unregister(uint32_t id);
  // The address of a region, and the device that it lies on.
  struct Place {
    RowMemory memory;
    std::string device_uuid;
  };
  // Nothing if no region has the id. The answer holds until the region is unregistered or closed,
  // which the caller must prevent while it uses the answer.
  std::optional<Place> Find(uint32_t id);

  // Ends the table with its session: unmaps everything, and refuses every later registration.
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
