// Ranks of a session that are processes of their own: who may join, and where each rank's next
// tokens lie.
//
// Rounds write next tokens under the session's lock only, also those on a stream, whose writes are
// done before their done word is. So a rank that has left under the lock is in no round, and its
// memory may be unmapped.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "daemon/session/session.h"
#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

TensorRole RoleOf(uint32_t rank) {
  return static_cast<TensorRole>(static_cast<uint32_t>(TensorRole::kNextToken) + rank);
}

absl::Status Ended() {
  return MakeError(SPECD_ERROR_STATE, "token",
                   "token is of a session that has ended; join the engine's new session with the "
                   "token of that one");
}

}  // namespace

absl::StatusOr<JoinToken> Session::MakeToken() {
  MutexLock lock(&mutex_);
  if (join_secret_.empty()) {
    absl::StatusOr<std::string> secret = MakeJoinSecret();
    if (!secret.ok()) return secret.status();
    join_secret_ = *std::move(secret);
  }
  return JoinToken{options_.identity.session_id, join_secret_};
}

uint32_t Session::bound_ranks() {
  MutexLock lock(&mutex_);
  uint32_t bound = bound_members_;
  for (const auto& [role, region] : bound_regions_) {
    if (const std::optional<uint32_t> rank = ReplicaOf(role); rank.has_value())
      bound |= 1U << *rank;
  }
  return bound;
}

absl::Status Session::TakeRank(const JoinToken& token, uint32_t rank) {
  MutexLock lock(&mutex_);
  const uint64_t session_id = options_.identity.session_id;
  if (!IsSecret(join_secret_, token.secret)) {
    return MakeError(
        SPECD_ERROR_PERMISSION, "token",
        fmt::format("token is not that of session {}; take the one that specd_get_group "
                    "gives to the engine, anew for each specd_open",
                    session_id));
  }
  if (ended()) return Ended();
  if (rank == 0 || rank >= kNextTokensMax) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "rank",
        fmt::format("rank = {} is outside 1 .. {}; rank 0 is the engine's own process, "
                    "which calls specd_bind",
                    rank, kNextTokensMax - 1));
  }
  if (IsJoined(rank)) {
    return MakeError(SPECD_ERROR_STATE, "rank",
                     fmt::format("rank = {} of session {} has joined already; join with another "
                                 "number of 1 .. {}, or when that process has left or ended",
                                 rank, session_id, kNextTokensMax - 1));
  }
  if (bound_regions_.contains(RoleOf(rank))) {
    return MakeError(
        SPECD_ERROR_STATE, "rank",
        fmt::format("rank = {} of session {} has the engine's own memory, bound to {}; "
                    "join with another number of 1 .. {}, or have the engine leave "
                    "that role alone",
                    rank, session_id, NameOf(RoleOf(rank)), kNextTokensMax - 1));
  }
  joined_ranks_ |= 1U << rank;
  return absl::OkStatus();
}

absl::Status Session::BindRank(uint32_t rank, Regions& regions, uint32_t region,
                               const TensorSpec& spec) {
  const absl::StatusOr<RowMemory> memory = MemoryOf(RoleOf(rank), region, regions);
  if (!memory.ok()) return memory.status();
  MutexLock lock(&mutex_);
  SPECD_CHECK(IsJoined(rank));
  if (ended()) return Ended();
  absl::Status status = BindMemory(RoleOf(rank), *memory, spec);
  if (status.ok()) bound_members_ |= 1U << rank;
  return status;
}

void Session::LeaveRank(uint32_t rank) {
  MutexLock lock(&mutex_);
  verifier_->BindNextTokens(rank, {});
  bound_members_ &= ~(1U << rank);
  joined_ranks_ &= ~(1U << rank);
}

}  // namespace specd
