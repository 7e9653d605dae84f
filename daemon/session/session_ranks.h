// SessionRanks keeps the ranks of one session, and whose slot outputs are bound.
//
// The engine binds slot outputs of ranks in its own process. Ranks that are other processes join
// and bind their own. Rounds write slot outputs under the session's lock only. A round on a CUDA
// stream writes them before its done word, under the same lock. After a rank has left under the
// lock, no round writes to its memory, and the memory may be unmapped. Every function takes the
// lock.
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

  // Binds a role to memory of the engine. Refused if a rank that has joined has the role.
  absl::Status BindOwn(TensorRole role, uint32_t region, const TensorSpec& spec);

  // The token that lets a rank join. The first call makes the token.
  absl::StatusOr<JoinToken> MakeToken();
  // Bit k: next tokens of rank k are bound.
  uint32_t bound_ranks();
  // Gives the rank its place, or explains why the rank cannot have it.
  absl::Status Take(const JoinToken& token, uint32_t rank);
  // Binds a slot output of a rank in the rank's own memory. REQUIRES: the rank has been taken.
  absl::Status Bind(const SlotRole& slot, Regions& regions, uint32_t region,
                    const TensorSpec& spec);
  // Frees the place. After the return no round writes to the rank's memory.
  void Leave(uint32_t rank);

 private:
  bool IsJoined(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    return (joined_ >> rank & 1) != 0;
  }

  SessionState& state_;
  SessionMemory& memory_;
  std::string join_secret_ ABSL_GUARDED_BY(state_.mutex);  // empty: no token was asked for
  uint32_t joined_ ABSL_GUARDED_BY(state_.mutex) = 0;      // a bit for each rank that has joined
  // A bit for each of these that has bound memory.
  uint32_t bound_members_ ABSL_GUARDED_BY(state_.mutex) = 0;
};

}  // namespace specd
