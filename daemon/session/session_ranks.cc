#include "daemon/session/session_ranks.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

absl::Status Ended() {
  return MakeError(SPECD_ERROR_STATE, "token",
                   "token is of a session that has ended; join the engine's new session with the "
                   "token of that one");
}

}  // namespace

absl::Status SessionRanks::BindOwn(TensorRole role, uint32_t region, const TensorSpec& spec) {
  if (NameOf(role).empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "role",
                     fmt::format("role = {} is not supported; use SPECD_TARGET_ROWS (1), "
                                 "SPECD_DRAFT_ROWS (2), SPECD_GRAMMAR_MASK (3), "
                                 "SPECD_DRAFT_TOKENS (16), SPECD_DRAFT_MAP (17), "
                                 "SPECD_DRAFT_PARENTS (18), SPECD_DRAFT_NEXT_CHILD (19), "
                                 "SPECD_DRAFT_NEXT_SIBLING (20), or + 0 .. {}: "
                                 "SPECD_NEXT_TOKEN (4), "
                                 "SPECD_KEPT_TOKENS (32), SPECD_NUM_KEPT (40), "
                                 "SPECD_NUM_ACCEPTED (48), SPECD_TOTAL_KEPT (56), "
                                 "SPECD_ACCEPTED_PATH (64), SPECD_PREDICTS (72), "
                                 "SPECD_ACCEPT_INDEX (80)",
                                 static_cast<uint32_t>(role), kReplicasMax - 1));
  }
  const absl::StatusOr<RowMemory> memory = memory_.Find(role, region, memory_.regions());
  if (!memory.ok()) return memory.status();
  // Under the lock no piece of a round is reading the rows that were bound until now. A round may
  // still wait in the ring, although the library prevents that. It is verified with the new tensor,
  // within the tensor's bounds.
  MutexLock lock(&state_.mutex);
  if (state_.between_pieces) {
    return MakeError(
        SPECD_ERROR_STATE, "role",
        "role is bound to memory that a round or call is reading; poll for the round's "
        "completion, or bind again later");
  }
  if (const std::optional<SlotRole> slot = SlotRoleOf(role);
      slot.has_value() && IsJoined(slot->replica)) {
    return MakeError(SPECD_ERROR_STATE, "role",
                     fmt::format("role = {} is that of rank {}, a process of its own which has "
                                 "joined and binds its own memory; bind another role, or have the "
                                 "rank leave first",
                                 static_cast<uint32_t>(role), slot->replica));
  }
  return memory_.BindOwn(role, region, *memory, spec);
}

absl::StatusOr<JoinToken> SessionRanks::MakeToken() {
  MutexLock lock(&state_.mutex);
  if (join_secret_.empty()) {
    absl::StatusOr<std::string> secret = MakeJoinSecret();
    if (!secret.ok()) return secret.status();
    join_secret_ = *std::move(secret);
  }
  return JoinToken{state_.options.identity.session_id, join_secret_};
}

uint32_t SessionRanks::bound_ranks() {
  MutexLock lock(&state_.mutex);
  uint32_t bound = bound_members_;
  for (const auto& [role, region] : memory_.bound()) {
    const std::optional<SlotRole> slot = SlotRoleOf(role);
    if (slot.has_value() && slot->field == SlotField::kNextToken) bound |= 1U << slot->replica;
  }
  return bound;
}

absl::Status SessionRanks::Take(const JoinToken& token, uint32_t rank) {
  MutexLock lock(&state_.mutex);
  const uint64_t session_id = state_.options.identity.session_id;
  if (!IsSecret(join_secret_, token.secret)) {
    return MakeError(
        SPECD_ERROR_PERMISSION, "token",
        fmt::format("token is not that of session {}; take the one that specd_get_group "
                    "gives to the engine, anew for each specd_open",
                    session_id));
  }
  if (state_.ended) return Ended();
  if (rank == 0 || rank >= kReplicasMax) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "rank",
        fmt::format("rank = {} is outside 1 .. {}; rank 0 is the engine's own process, "
                    "which calls specd_bind",
                    rank, kReplicasMax - 1));
  }
  if (IsJoined(rank)) {
    return MakeError(SPECD_ERROR_STATE, "rank",
                     fmt::format("rank = {} of session {} has joined already; join with another "
                                 "number of 1 .. {}, or when that process has left or ended",
                                 rank, session_id, kReplicasMax - 1));
  }
  for (const auto& [role, region] : memory_.bound()) {
    const std::optional<SlotRole> slot = SlotRoleOf(role);
    if (!slot.has_value() || slot->replica != rank) continue;
    return MakeError(
        SPECD_ERROR_STATE, "rank",
        fmt::format("rank = {} of session {} has the engine's own memory, bound to {}; "
                    "join with another number of 1 .. {}, or have the engine leave "
                    "that role alone",
                    rank, session_id, NameOf(role), kReplicasMax - 1));
  }
  joined_ |= 1U << rank;
  return absl::OkStatus();
}

absl::Status SessionRanks::Bind(const SlotRole& slot, Regions& regions, uint32_t region,
                                const TensorSpec& spec) {
  const TensorRole role = RoleOf(slot);
  const absl::StatusOr<RowMemory> memory = memory_.Find(role, region, regions);
  if (!memory.ok()) return memory.status();
  MutexLock lock(&state_.mutex);
  SPECD_CHECK(IsJoined(slot.replica));
  if (state_.ended) return Ended();
  absl::Status status = memory_.Bind(role, *memory, spec);
  if (status.ok() && slot.field == SlotField::kNextToken) bound_members_ |= 1U << slot.replica;
  return status;
}

void SessionRanks::Leave(uint32_t rank) {
  MutexLock lock(&state_.mutex);
  for (uint32_t field = 0; field < kNumSlotFields; ++field) {
    state_.verifier->BindSlotOutput(rank, {.field = static_cast<SlotField>(field)});
  }
  bound_members_ &= ~(1U << rank);
  joined_ &= ~(1U << rank);
}

}  // namespace specd
