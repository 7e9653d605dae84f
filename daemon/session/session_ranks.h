// SessionRanks: the ranks of one session: which next tokens are bound, by the engine itself or by
// ranks that are processes of their own and have joined.
//
// Rounds write next tokens under the session's lock only, also those on a CUDA stream, whose writes
// are done before their done word is. So a rank that has left under the lock is in no round, and
// its memory may be unmapped. Every function takes the lock.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/join_token.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_state.h"

namespace specd {

class SessionRanks {
 public:
  SessionRanks(SessionState* state, SessionMemory* memory) : state_(*state), memory_(*memory) {}

  // Binds a role to memory of the engine; refused where a rank that has joined has the role.
  absl::Status BindOwn(TensorRole role, uint32_t region, const TensorSpec& spec);

  // The token that lets a rank join, made when it is first asked for.
  absl::StatusOr<JoinToken> MakeToken();
  // Bit k: next tokens of rank k are bound.
  uint32_t bound_ranks();
  // Gives the rank its place, or says why it cannot have it.
  absl::Status Take(const JoinToken& token, uint32_t rank);
  // Binds next tokens of a rank in the rank's own memory. REQUIRES: the rank has been taken.
  absl::Status Bind(uint32_t rank, Regions& regions, uint32_t region, const TensorSpec& spec);
  // Frees the place. After the return no round writes there.
  void Leave(uint32_t rank);

 private:
  bool IsJoined(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    return (joined_ >> rank & 1) != 0;
  }

  SessionState& state_;
  SessionMemory& memory_;
  std::string join_secret_ ABSL_GUARDED_BY(state_.mutex);     // empty: no token was asked for
  uint32_t joined_ ABSL_GUARDED_BY(state_.mutex) = 0;         // a bit for each
  uint32_t bound_members_ ABSL_GUARDED_BY(state_.mutex) = 0;  // of these, with memory
};

}  // namespace specd
