#include "daemon/session/regions.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
absl::StatusOr<uint32_t> Regions::Register(UniqueFd fd, uint64_t size_bytes) {
  absl::StatusOr<Region> region = Region::Import(std::move(fd), size_bytes, session_.has_faulted);
  if (!region.ok()) return region.status();
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  absl::StatusOr<MemoryShare> memory = TakeMemory(session_.memory, "the region", size_bytes);
  if (!memory.ok()) return memory.status();
  host_[next_host_id_] = {.imported = std::make_unique<Region>(*std::move(region)),
                          .memory = *std::move(memory)};
  return next_host_id_++;
}

absl::StatusOr<uint32_t> Regions::Lend(const RowMemory& memory) {
  if (absl::Status status = CheckRoom(); !status.ok()) return status;
  host_[next_host_id_] = {.lent = memory};
  return next_host_id_++;
}

absl::Status Regions::CheckRoom() const {
  if (host_.size() < kHostRegionsMax && next_host_id_ < DeviceRegions::kFirstId) {
    return absl::OkStatus();
  }
  return MakeError(
      SPECD_ERROR_EXHAUSTED, "region",
      fmt::format("{} regions are registered and {} were; an engine or a rank may have {} at a "
                  "time and {} in all. Put several tensors into one region, or attach or join "
                  "again",
                  host_.size(), next_host_id_ - 1, kHostRegionsMax, DeviceRegions::kFirstId - 1));
}

absl::Status Regions::Unregister(uint32_t id) {
  return host_.erase(id) > 0 ? absl::OkStatus() : device_.Unregister(id);
}

absl::StatusOr<RowMemory> Regions::FindHost(uint32_t id, bool for_writing) {
  const auto found = host_.find(id);
  if (found == host_.end()) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "region",
                     fmt::format("region = {} was never registered, or is not any more", id));
  }
  const Registered& registered = found->second;
  if (registered.imported == nullptr) return registered.lent;
  if (for_writing) return registered.imported->MapForWriting();
  return *registered.imported;
}

}  // namespace specd
