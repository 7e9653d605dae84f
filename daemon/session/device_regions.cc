#include "daemon/session/device_regions.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kDeviceRegionsMax = 16;

}  // namespace

absl::Status DeviceRegions::CheckRoom() const {
  if (closed_) {
    return MakeError(SPECD_ERROR_STATE, "region", "the session has ended; attach or join again");
  }
  if (entries_.size() == kDeviceRegionsMax) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "region",
                     fmt::format("{} regions of device memory are registered, as many as an engine "
                                 "or a rank may have; unregister some, or put several tensors into "
                                 "one",
                                 kDeviceRegionsMax));
  }
  return absl::OkStatus();
}

absl::Status DeviceRegions::CheckNew(const DeviceRegionSpec& spec) {
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  for (const auto& [id, entry] : entries_) {
    const DeviceRegionSpec& known = entry.spec;
    if (known.export_pid != spec.export_pid) continue;
    // One of the two descriptions is of memory that is gone. Memory shared through descriptors
    // cannot be gone, and two tensors that begin in one piece may end in different pieces.
    const bool has_one_size = spec.kind != static_cast<uint32_t>(GpuMemoryKind::kVmm);
    if (known.buffer_id == spec.buffer_id &&
        (known.kind != spec.kind || (has_one_size && known.base_bytes != spec.base_bytes))) {
      return MakeError(SPECD_ERROR_STATE, "buffer_id",
                       fmt::format("buffer_id = {} is registered as region {} with base_bytes = {} "
                                   "and kind = {}, and comes with {} and {}; an allocation has one "
                                   "size and kind",
                                   spec.buffer_id, id, known.base_bytes, known.kind,
                                   spec.base_bytes, spec.kind));
    }
    if (!spec.handle.empty() && known.handle == spec.handle && known.buffer_id != spec.buffer_id) {
      return MakeError(SPECD_ERROR_STATE, "buffer_id",
                       fmt::format("buffer_id = {} comes with the handle of region {}, which was "
                                   "registered with buffer_id = {}: the memory was freed and "
                                   "allocated again; unregister the region first",
                                   spec.buffer_id, id, known.buffer_id));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> DeviceRegions::Register(const DeviceRegionSpec& spec,
                                                 std::span<const UniqueFd> fds, pid_t peer_pid) {
  if (importer_ == nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "kind",
                     "rounds of this session run on the CPU, which cannot read device memory; "
                     "start the daemon with --device=cuda, or share rows in a sealed memfd");
  }
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckNew(spec); !status.ok()) return status;
  absl::StatusOr<DeviceRegion> region = importer_->Import(spec, fds, peer_pid);
  if (!region.ok()) return region.status();
  entries_.emplace(next_id_, Entry{*std::move(region), spec});
  return next_id_++;
}

absl::StatusOr<uint32_t> DeviceRegions::Adopt(DeviceRegion region) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  entries_.emplace(next_id_, Entry{std::move(region), DeviceRegionSpec()});
  return next_id_++;
}

absl::Status DeviceRegions::Unregister(uint32_t id) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "region",
                     fmt::format("region = {} is not registered, or not any more", id));
  }
  const absl::Status status = found->second.region.Close();
  entries_.erase(found);
  return status;
}

std::optional<DeviceRegions::Place> DeviceRegions::Find(uint32_t id) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return std::nullopt;
  const DeviceRegion& region = found->second.region;
  return Place{region.memory(), region.device_uuid()};
}

void DeviceRegions::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  entries_.clear();
}

}  // namespace specd
