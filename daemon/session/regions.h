// Regions holds the host and device memory that one process has registered.
//
// An engine's session has one table, and each joined rank has one. Their numbers and limits are
// therefore independent. The control thread alone uses a table, except for the functions that
// DeviceRegions opens to other threads. REQUIRES: the caller of Unregister or Close knows that no
// round uses the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/memory_budget.h"
#include "daemon/session/device_regions.h"
#include "ipc/base/unique_fd.h"
#include "ipc/memory/region.h"

namespace specd {

// At a time, of one engine or one rank. Each keeps its descriptor.
inline constexpr size_t kHostRegionsMax = 16;

class Regions {
 public:
  // The parts of a session that its table needs. The session outlives the table.
  struct Host {
    DeviceImporter* importer = nullptr;        // null: device memory is refused
    MemoryBudget* memory = nullptr;            // null: host memory is not bounded
    std::atomic<bool>* has_faulted = nullptr;  // Region::Import
  };
  explicit Regions(const Host& host) : session_(host), device_(host.importer) {}

  // Registers host memory. Returns the id, which is never used again. The whole region counts: a
  // read of a page that is not there takes it, and the engine may make holes at any time.
  absl::StatusOr<uint32_t> Register(UniqueFd fd, uint64_t size_bytes);
  // Registers host memory of this process in place, and returns its id. The memory costs the
  // session nothing. It outlives the region.
  absl::StatusOr<uint32_t> Lend(const RowMemory& memory);
  DeviceRegions& device() { return device_; }
  // Takes the id of any kind. After success the memory is no longer used here.
  absl::Status Unregister(uint32_t id);
  // Finds host memory, mapped for writing if asked. SPECD_ERROR_NOT_FOUND: no region has the id.
  absl::StatusOr<RowMemory> FindHost(uint32_t id, bool for_writing);

 private:
  struct Registered {
    std::unique_ptr<Region> imported = nullptr;  // null: lent
    RowMemory lent = {};
    MemoryShare memory = {};
  };
  absl::Status CheckRoom() const;

  const Host session_;
  std::map<uint32_t, Registered> host_;  // by id
  uint32_t next_host_id_ = 1;
  DeviceRegions device_;
};

}  // namespace specd
