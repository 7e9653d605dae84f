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

// Rank and engine have to go on at the next daemon both, or neither.
absl::Status OtherEnd(const RankClaim& claim) {
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, "reconnect_ms",
      claim.resumes
          ? fmt::format("reconnect_ms is set for rank {} but not for rank 0: the session ends with "
                        "its daemon; open rank 0's engine with reconnect_ms too, or join with 0",
                        claim.rank)
          : fmt::format("reconnect_ms is set for rank 0 but not for rank {}, which rank 0 would "
                        "await in vain at the next daemon; set it in specd_join_options too",
                        claim.rank));
}

// Rounds may have run that the rank has missed.
absl::Status GoneOn(uint32_t rank) {
  return MakeError(SPECD_ERROR_STATE, "rejoins",
                   fmt::format("rank 0 has gone on without rank {}, or has ended; rounds may be "
                               "missing in the rank's memory, so leave, and join as a new rank",
                               rank));
}

uint32_t BitOf(SlotField field) { return 1U << static_cast<uint32_t>(field); }

}  // namespace

SessionRanks::SessionRanks(SessionState* state, SessionMemory* memory)
    : state_(*state),
      memory_(*memory),
      token_(state->options.origin.join_token.value_or(
          JoinToken{.session_id = state->options.identity.session_id, .secret = {}})) {}

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
      slot.has_value() && places_[slot->replica].is_taken) {
    return MakeError(SPECD_ERROR_STATE, "role",
                     fmt::format("role = {} is that of rank {}, a process of its own which has "
                                 "joined and binds its own memory; bind another role, or have the "
                                 "rank leave first",
                                 static_cast<uint32_t>(role), slot->replica));
  }
  return memory_.BindOwn(role, region, *memory, spec);
}

absl::StatusOr<JoinToken> SessionRanks::MakeToken() {
  MutexLock lock(&token_mutex_);
  if (token_.secret.empty()) {
    absl::StatusOr<std::string> secret = MakeJoinSecret();
    if (!secret.ok()) return secret.status();
    token_.secret = *std::move(secret);
  }
  return token_;
}

std::optional<JoinToken> SessionRanks::FindToken() {
  MutexLock lock(&token_mutex_);
  return token_.secret.empty() ? std::nullopt : std::optional<JoinToken>(token_);
}

bool SessionRanks::HasNumberOf(const JoinToken& token) {
  MutexLock lock(&token_mutex_);
  return token_.session_id == token.session_id;
}

bool SessionRanks::HasToken(const JoinToken& token) {
  MutexLock lock(&token_mutex_);
  return token_.session_id == token.session_id && IsSecret(token_.secret, token.secret);
}

uint32_t SessionRanks::bound_ranks() {
  MutexLock lock(&state_.mutex);
  uint32_t bound = 0;
  for (uint32_t rank = 0; rank < kReplicasMax; ++rank) {
    if ((places_[rank].fields & BitOf(SlotField::kNextToken)) != 0) bound |= 1U << rank;
  }
  for (const auto& [role, region] : memory_.bound()) {
    const std::optional<SlotRole> slot = SlotRoleOf(role);
    if (slot.has_value() && slot->field == SlotField::kNextToken) bound |= 1U << slot->replica;
  }
  return bound;
}

absl::Status SessionRanks::Take(const RankClaim& claim) {
  MutexLock lock(&state_.mutex);
  if (state_.ended) return SessionHasEnded();
  if (claim.rank == 0 || claim.rank >= kReplicasMax) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "rank",
        fmt::format("rank = {} is outside 1 .. {}; rank 0 is the engine's own process, "
                    "which calls specd_bind",
                    claim.rank, kReplicasMax - 1));
  }
  if (claim.resumes != state_.options.origin.resumes) return OtherEnd(claim);
  if (claim.rejoins && state_.channel.WasEngineReady()) return GoneOn(claim.rank);
  if (absl::Status status = CheckPlace(claim.rank); !status.ok()) return status;
  places_[claim.rank] = {.is_taken = true, .fields = 0};
  return absl::OkStatus();
}

absl::Status SessionRanks::CheckPlace(uint32_t rank) const {
  const uint64_t session_id = state_.options.identity.session_id;
  if (places_[rank].is_taken) {
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
  return absl::OkStatus();
}

absl::Status SessionRanks::Bind(const SlotRole& slot, Regions& regions, uint32_t region,
                                const TensorSpec& spec) {
  const TensorRole role = RoleOf(slot);
  const absl::StatusOr<RowMemory> memory = memory_.Find(role, region, regions);
  if (!memory.ok()) return memory.status();
  MutexLock lock(&state_.mutex);
  Place& place = places_[slot.replica];
  SPECD_CHECK(place.is_taken);
  if (state_.ended) return SessionHasEnded();
  if (absl::Status status = memory_.Bind(role, *memory, spec); !status.ok()) return status;
  place.fields |= BitOf(slot.field);
  ShowBound();
  return absl::OkStatus();
}

void SessionRanks::Leave(uint32_t rank) {
  MutexLock lock(&state_.mutex);
  for (uint32_t field = 0; field < kNumSlotFields; ++field) {
    state_.verifier->BindSlotOutput(rank, {.field = static_cast<SlotField>(field)});
  }
  places_[rank] = {};
  // A rank whose session has ended is awaited at the next daemon.
  if (!state_.ended) ShowBound();
}

void SessionRanks::ShowBound() {
  static_assert(kReplicasMax * kNumSlotFields <= 64);
  uint64_t bound = 0;
  for (uint32_t rank = 0; rank < kReplicasMax; ++rank) {
    bound |= uint64_t{places_[rank].fields} << (rank * kNumSlotFields);
  }
  state_.channel.SetBoundOutputs(bound);
}

}  // namespace specd
