// SessionRounds takes rounds from the engine, has them verified, and answers them.
//
// Rounds inside the engine's CUDA graph are taken and staged; a later step answers them. The verify
// thread calls these functions under the session's lock. In embedded mode the engine's thread does.
// A round allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_sequences.h"
#include "daemon/session/session_state.h"

namespace specd {

class SessionRounds {
 public:
  SessionRounds(SessionState* state, SessionMemory* memory, SessionSequences* sequences);

  // True if the queue has room for the events of one more round. No event is ever dropped: a late
  // publisher slows the engine.
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // Verifies and answers, or stages, a round that was just taken. A staged round keeps the
  // submission's memory, and leaves other memory in its place.
  void Do(SubmissionCopy* submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // Answers the oldest staged round. False if the round is not done, or no round is staged.
  bool Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // ---- for rounds inside the engine's CUDA graph; each takes the lock

  // OK if rounds can be staged with the session's present roles; otherwise the reason.
  absl::Status CheckStaging();
  // Enqueues launches on a CUDA stream of the engine. They run the oldest staged round.
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences);

 private:
  void ShowTaken(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void Verify(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Answers with results_, one result for each record.
  void Answer(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void AbortAll(std::span<SequenceResult> results);
  // OK if rounds can be staged with the backend and the bound roles; otherwise the reason.
  absl::Status CheckBoundForStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  SessionMemory& memory_;
  SessionSequences& sequences_;
  std::vector<SequenceResult> results_ ABSL_GUARDED_BY(state_.mutex);

  // Staged rounds as they were taken, the oldest first. The vector is a ring, and empty before
  // EnqueueStaged.
  std::vector<SubmissionCopy> staged_ ABSL_GUARDED_BY(state_.mutex);
  size_t first_staged_ ABSL_GUARDED_BY(state_.mutex) = 0;
  bool can_stage_ ABSL_GUARDED_BY(state_.mutex) = false;  // EnqueueStaged has succeeded
};

}  // namespace specd
