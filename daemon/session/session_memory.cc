#include "daemon/session/session_memory.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/profile_defaults.h"
#include "ipc/base/error.h"
#include "ipc/base/peer_memory.h"
#include "ipc/include/specd/specd.h"
#include "ipc/memory/draft_map.h"

namespace specd {
namespace {

// The error for device memory that rounds of this backend cannot read.
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
                               "from specd_alloc, or have rounds run on the other device, such as "
                               "--device=cuda:1 or embedded:cuda:1",
                               what, backend.device_uuid()));
}

}  // namespace

SessionMemory::SessionMemory(SessionState* state)
    : state_(*state), regions_(state->regions_host()) {}

absl::StatusOr<uint32_t> SessionMemory::Register(UniqueFd fd, uint64_t size_bytes) {
  return regions_.Register(std::move(fd), size_bytes);
}

absl::Status SessionMemory::Unregister(uint32_t region) {
  {
    MutexLock lock(&state_.mutex);
    for (const auto& [role, bound] : bound_) {
      if (bound.id != region) continue;
      return MakeError(SPECD_ERROR_STATE, "region",
                       fmt::format("region = {} has the tensor that {} is bound to, which rounds "
                                   "use; bind the role to other memory first, or close the engine",
                                   region, NameOf(role)));
    }
  }
  return regions_.Unregister(region);
}

absl::StatusOr<RowMemory> SessionMemory::Find(TensorRole role, uint32_t region, Regions& regions) {
  if (const auto device = regions.device().Find(region); device.has_value()) {
    const Backend& backend = state_.backend;
    if (IsSameDevice(device->device_uuid, backend.device_uuid())) return device->memory;
    if (SlotRoleOf(role).has_value() && !backend.device_uuid().empty()) {
      RowMemory memory = device->memory;
      memory.space = MemorySpace::kOtherDevice;
      return memory;
    }
    return WrongSpace(role, region, device->device_uuid, backend);
  }
  return regions.FindHost(region, SlotRoleOf(role).has_value());
}

absl::Status SessionMemory::BindOwn(TensorRole role, uint32_t region, const RowMemory& memory,
                                    const TensorSpec& spec) {
  absl::Status status = Bind(role, memory, spec);
  if (status.ok() && role != TensorRole::kDraftMap) {
    bound_[role] = {.id = region, .space = memory.space};
  }
  return status;
}

absl::Status SessionMemory::Bind(TensorRole role, const RowMemory& memory, const TensorSpec& spec) {
  const int32_t vocab_size = state_.options.limits.vocab_size;
  if (const std::optional<SlotRole> slot = SlotRoleOf(role); slot.has_value()) {
    const absl::StatusOr<SlotOutput> output =
        BindSlotOutput(memory, spec, slot->field, state_.options.limits);
    if (!output.ok()) return output.status();
    state_.verifier->BindSlotOutput(slot->replica, *output);
  } else if (role == TensorRole::kDraftTokens) {
    const absl::StatusOr<TokenRows> rows = BindTokenRows(
        memory, spec, state_.options.limits.max_sequences, state_.options.limits.max_draft);
    if (!rows.ok()) return rows.status();
    state_.verifier->BindDraftTokens(*rows);
    row_limits_.has_draft_tokens = true;
  } else if (role == TensorRole::kDraftParents || role == TensorRole::kDraftNextChild ||
             role == TensorRole::kDraftNextSibling) {
    if (absl::Status status = BindTree(role, memory, spec); !status.ok()) return status;
  } else if (role == TensorRole::kGrammarMask) {
    const absl::StatusOr<MaskView> mask = BindMask(memory, spec, vocab_size);
    if (!mask.ok()) return mask.status();
    state_.verifier->BindMask(*mask);
    row_limits_.mask_rows = static_cast<uint64_t>(mask->num_rows);
  } else {
    const absl::Status status = role == TensorRole::kDraftMap
                                    ? BindMap(memory, spec)
                                    : BindRows(role == TensorRole::kTargetRows, memory, spec);
    if (!status.ok()) return status;
  }
  state_.channel.SetRowLimits(row_limits_);
  return absl::OkStatus();
}

absl::Status SessionMemory::BindTree(TensorRole role, const RowMemory& memory,
                                     const TensorSpec& spec) {
  const SessionLimits& limits = state_.options.limits;
  const bool is_parents = role == TensorRole::kDraftParents;
  const uint32_t row_nodes = limits.max_draft + (is_parents || limits.max_draft == 0 ? 0 : 1);
  const absl::StatusOr<NodeRows> rows = BindNodeRows(memory, spec, limits.max_sequences, row_nodes);
  if (!rows.ok()) return rows.status();
  TreeRows tree = state_.verifier->draft_tree();
  const bool is_child = role == TensorRole::kDraftNextChild;
  // Both lists lie in one memory: a list of the other memory has to be bound anew.
  NodeRows& other = is_child ? tree.next_sibling : tree.next_child;
  if (!is_parents && other.data != nullptr && other.space != rows->space) {
    other = {};
    bound_.erase(is_child ? TensorRole::kDraftNextSibling : TensorRole::kDraftNextChild);
  }
  (is_parents ? tree.parents : is_child ? tree.next_child : tree.next_sibling) = *rows;
  state_.verifier->BindDraftTree(tree);
  row_limits_.has_draft_tree = tree.is_bound();
  return absl::OkStatus();
}

absl::Status SessionMemory::BindMap(const RowMemory& memory, const TensorSpec& spec) {
  const int32_t vocab_size = state_.options.limits.vocab_size;
  const absl::StatusOr<DraftMapView> view = BindDraftMap(memory, spec, vocab_size);
  if (!view.ok()) return view.status();
  std::vector<std::byte> copy(view->size_bytes());
  if (view->space == MemorySpace::kDevice) {
    const MemoryRead read{.from = view->data, .to = copy.data(), .size_bytes = copy.size()};
    if (absl::Status s = state_.verifier->ReadMemory(read); !s.ok()) return s;
  } else {
    CopyOnce(copy.data(), view->data, copy.size());
  }
  absl::StatusOr<std::vector<int32_t>> columns = ColumnsOfMap(*view, copy, vocab_size);
  if (!columns.ok()) return columns.status();
  // The rows are unbound even if the backend cannot keep the map.
  bound_.erase(TensorRole::kDraftRows);
  row_limits_.draft_rows = 0;
  state_.channel.SetRowLimits(row_limits_);
  return state_.verifier->BindDraftMap(*std::move(columns), view->num_columns);
}

absl::Status SessionMemory::BindRows(bool is_target, const RowMemory& memory,
                                     const TensorSpec& spec) {
  const int32_t vocab_size = state_.options.limits.vocab_size;
  // The profile is of the target model; a drafter's rows are as its binding says.
  const absl::StatusOr<TensorView> view =
      BindTensor(memory, is_target ? WithProfile(*state_.options.profile, spec) : spec, vocab_size);
  if (!view.ok()) return view.status();
  if (is_target && view->num_columns != 0) {
    return Invalid("columns", fmt::format("columns = {} of SPECD_TARGET_ROWS must be 0 or {} "
                                          "(vocab_size); only draft rows may have fewer",
                                          view->num_columns, vocab_size));
  }
  const int32_t of_map = state_.verifier->num_draft_columns();
  if (view->num_columns != 0 && view->num_columns != of_map) {
    const std::string bound = of_map == 0 ? "SPECD_DRAFT_MAP is not bound"
                                          : fmt::format("SPECD_DRAFT_MAP has {}", of_map);
    return Invalid("columns", fmt::format("columns = {} of SPECD_DRAFT_ROWS is below {} "
                                          "(vocab_size), and {}; bind the map with the id of each "
                                          "column first",
                                          view->num_columns, vocab_size, bound));
  }
  const absl::Status status =
      is_target ? state_.verifier->BindTarget(*view) : state_.verifier->BindDraft(*view);
  if (!status.ok()) return status;
  (is_target ? row_limits_.target_rows : row_limits_.draft_rows) =
      static_cast<uint64_t>(view->num_rows);
  return absl::OkStatus();
}

}  // namespace specd
