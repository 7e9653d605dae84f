// Regions: the memory, of host and device, that one process has registered.
//
// An engine has one table with its session, and a rank that has joined one of its own, so that
// their numbers and limits have nothing to do with each other. Used by the control thread alone,
// but for what DeviceRegions says. Who unregisters or closes must know that no round uses the
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/device_regions.h"
#include "ipc/base/unique_fd.h"
#include "ipc/memory/region.h"

namespace specd {

class Regions {
 public:
  // Without an importer device memory is refused.
  explicit Regions(DeviceImporter* importer) : device_(importer) {}

  // Of host memory; returns the id, which is never used again.
  absl::StatusOr<uint32_t> Register(UniqueFd fd, uint64_t size_bytes);
  DeviceRegions& device() { return device_; }
  // Of either kind: once this has succeeded its memory is not mapped here any more.
  absl::Status Unregister(uint32_t id);
  // Of host memory; null where the id is nobody's.
  Region* FindHost(uint32_t id);

 private:
  std::map<uint32_t, std::unique_ptr<Region>> host_;  // by id
  uint32_t next_host_id_ = 1;
  DeviceRegions device_;
};

}  // namespace specd
