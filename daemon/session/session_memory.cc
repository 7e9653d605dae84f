// The memory of a session: which regions are registered, and which rows a round is judged by.
//
// Rounds read under the session's lock only. So a role that is bound anew, and a region that no
// role is bound to, are in no round: nothing else is needed before memory is unmapped.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "daemon/session/session.h"
#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status NotRegistered(uint32_t region) {
  return MakeError(SPECD_ERROR_NOT_FOUND, "region",
                   fmt::format("region = {} was never registered, or is not any more", region));
}

// Device memory that rounds of this backend cannot read.
absl::Status WrongSpace(TensorRole role, uint32_t region, const std::string& lies_on,
                        const Backend& backend) {
  const std::string what = fmt::format(
      "region = {} is memory of {}, to which {} cannot be bound: ", region, lies_on, NameOf(role));
  if (backend.device_uuid().empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "region",
                     fmt::format("{}rounds of this session run on \"{}\", which reads host memory "
                                 "only. Bind memory from specd_alloc, or have rounds run on the "
                                 "device (a daemon with --device=cuda, or embedded:cuda)",
                                 what, backend.name()));
  }
  return MakeError(SPECD_ERROR_UNSUPPORTED, "region",
                   fmt::format("{}rounds of this session run on {}. Bind memory of that device or "
                               "from specd_alloc, or start specd with the other device first in "
                               "CUDA_VISIBLE_DEVICES",
                               what, backend.device_uuid()));
}

}  // namespace

absl::StatusOr<uint32_t> Session::RegisterRegion(UniqueFd fd, uint64_t size_bytes) {
  return regions_.Register(std::move(fd), size_bytes);
}

absl::Status Session::UnregisterRegion(uint32_t region) {
  {
    MutexLock lock(&mutex_);
    for (const auto& [role, bound] : bound_regions_) {
      if (bound.id != region) continue;
      return MakeError(SPECD_ERROR_STATE, "region",
                       fmt::format("region = {} has the tensor that {} is bound to, which rounds "
                                   "use; bind the role to other memory first, or close the engine",
                                   region, NameOf(role)));
    }
  }
  return regions_.Unregister(region);
}

absl::StatusOr<RowMemory> Session::MemoryOf(TensorRole role, uint32_t region, Regions& regions) {
  if (const auto device = regions.device().Find(region); device.has_value()) {
    MutexLock lock(&mutex_);
    const Backend& backend = verifier_->backend();
    if (IsSameDevice(device->device_uuid, backend.device_uuid())) return device->memory;
    if (ReplicaOf(role).has_value() && !backend.device_uuid().empty()) {
      RowMemory memory = device->memory;
      memory.space = MemorySpace::kOtherDevice;
      return memory;
    }
    return WrongSpace(role, region, device->device_uuid, backend);
  }
  Region* const host = regions.FindHost(region);
  if (host == nullptr) return NotRegistered(region);
  if (ReplicaOf(role).has_value()) return host->MapForWriting();
  return *host;
}

absl::Status Session::Bind(TensorRole role, uint32_t region, const TensorSpec& spec) {
  if (NameOf(role).empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "role",
                     fmt::format("role = {} is not supported; use SPECD_TARGET_ROWS (1), "
                                 "SPECD_DRAFT_ROWS (2), SPECD_GRAMMAR_MASK (3), "
                                 "SPECD_NEXT_TOKEN (4) + 0 .. {} or SPECD_DRAFT_TOKENS (16)",
                                 static_cast<uint32_t>(role), kNextTokensMax - 1));
  }
  const absl::StatusOr<RowMemory> memory = MemoryOf(role, region, regions_);
  if (!memory.ok()) return memory.status();
  // No round is in the middle of the rows that were bound until now. One that waits in the ring
  // (the library does not let that happen) is judged by the new tensor, within its bounds.
  MutexLock lock(&mutex_);
  if (const std::optional<uint32_t> rank = ReplicaOf(role); rank.has_value() && IsJoined(*rank)) {
    return MakeError(SPECD_ERROR_STATE, "role",
                     fmt::format("role = {} is that of rank {}, a process of its own which has "
                                 "joined and binds its own memory; bind another role, or have the "
                                 "rank leave first",
                                 static_cast<uint32_t>(role), *rank));
  }
  absl::Status status = BindMemory(role, *memory, spec);
  if (status.ok()) bound_regions_[role] = {region, memory->space};
  return status;
}

absl::Status Session::BindMemory(TensorRole role, const RowMemory& memory, const TensorSpec& spec) {
  const auto vocab_size = static_cast<int32_t>(options_.limits.vocab_size);
  if (const std::optional<uint32_t> replica = ReplicaOf(role); replica.has_value()) {
    const absl::StatusOr<TokenArray> array =
        BindTokens(memory, spec, options_.limits.max_sequences);
    if (!array.ok()) return array.status();
    verifier_->BindNextTokens(*replica, *array);
  } else if (role == TensorRole::kDraftTokens) {
    const absl::StatusOr<TokenRows> rows =
        BindTokenRows(memory, spec, options_.limits.max_sequences, options_.limits.max_draft);
    if (!rows.ok()) return rows.status();
    verifier_->BindDraftTokens(*rows);
    row_limits_.has_draft_tokens = true;
  } else if (role == TensorRole::kGrammarMask) {
    const absl::StatusOr<MaskView> mask = BindMask(memory, spec, vocab_size);
    if (!mask.ok()) return mask.status();
    verifier_->BindMask(*mask);
    row_limits_.mask_rows = static_cast<uint64_t>(mask->num_rows);
  } else {
    const absl::StatusOr<TensorView> view = BindTensor(memory, spec, vocab_size);
    if (!view.ok()) return view.status();
    const bool is_target = role == TensorRole::kTargetRows;
    const absl::Status status =
        is_target ? verifier_->BindTarget(*view) : verifier_->BindDraft(*view);
    if (!status.ok()) return status;
    (is_target ? row_limits_.target_rows : row_limits_.draft_rows) =
        static_cast<uint64_t>(view->num_rows);
  }
  channel_.SetRowLimits(row_limits_);
  return absl::OkStatus();
}

}  // namespace specd
