// SessionRanks keeps the ranks of one session, and whose slot outputs are bound.
//
// The engine binds slot outputs of ranks in its own process. Ranks that are other processes join
// and bind their own. Rounds write slot outputs under the session's lock only. A round on a CUDA
// stream writes them before its done word, under the same lock. After a rank has left under the
// lock, no round writes to its memory, and the memory may be unmapped. Every function takes the
// lock. Those of the token have a lock of their own: a rank that looks for its session waits for no
// round.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/mutex.h"
#include "daemon/session/join_token.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_state.h"

namespace specd {

// A rank that asks for its place (JoinRequest).
struct RankClaim {
  uint32_t rank = 0;
  bool resumes = false;
  bool rejoins = false;  // it has bound slot outputs at another daemon
};

class SessionRanks {
 public:
  SessionRanks(SessionState* state, SessionMemory* memory);

  // Binds a role to memory of the engine. Refused if a rank that has joined has the role.
  absl::Status BindOwn(TensorRole role, uint32_t region, const TensorSpec& spec);

  // The token that lets a rank join. The first call makes the token, unless the engine has one of
  // another daemon.
  absl::StatusOr<JoinToken> MakeToken();
  // The same; nothing if there is none yet.
  std::optional<JoinToken> FindToken();
  // True if the session's token has this number. Another session's may have it too.
  bool HasNumberOf(const JoinToken& token);
  bool HasToken(const JoinToken& token);
  // Bit k: next tokens of rank k are bound.
  uint32_t bound_ranks();
  // Gives a rank that has the session's token its place, or explains why the rank cannot have it.
  absl::Status Take(const RankClaim& claim);
  // Binds a slot output of a rank in the rank's own memory. REQUIRES: the rank has been taken.
  absl::Status Bind(const SlotRole& slot, Regions& regions, uint32_t region,
                    const TensorSpec& spec);
  // Frees the place. After the return no round writes to the rank's memory.
  void Leave(uint32_t rank);

 private:
  // Of a rank that is a process of its own.
  struct Place {
    bool is_taken = false;
    uint32_t fields = 0;  // a bit for each SlotField that is bound
  };

  absl::Status CheckPlace(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Tells the engine which slot outputs of ranks are bound.
  void ShowBound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  SessionMemory& memory_;
  Mutex token_mutex_;
  // Without a secret: no token was asked for.
  JoinToken token_ ABSL_GUARDED_BY(token_mutex_);
  std::array<Place, kReplicasMax> places_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
