// SessionRounds: takes rounds from the engine, has them verified, and answers them.
//
// Rounds inside a graph of the engine's are taken and staged; a later step answers them. The verify
// thread calls these functions under the session's lock (in embedded mode the engine's thread
// does). A round allocates nothing.
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

  // Is there room for the events of one more round? No event is ever dropped: a publisher that is
  // behind slows the engine.
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // Verifies and answers, or stages, a round that was just taken. A staged round takes the place of
  // the submission's memory.
  void Do(SubmissionCopy* submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // Answers the oldest staged round; false if it has not been done, or there is none.
  bool Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // ---- for rounds inside a graph of the engine's; each takes the lock

  // Why no round can be staged in this session, as it is bound.
  absl::Status CheckStaging();
  // Enqueues on a CUDA stream of the engine's the launches that run the oldest staged round.
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences);

 private:
  void Verify(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // With results_, one for each record.
  void Answer(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void AbortAll(std::span<SequenceResult> results);
  // Backend and roles are such that rounds can be staged; else why not.
  absl::Status CheckBoundForStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  SessionMemory& memory_;
  SessionSequences& sequences_;
  std::vector<SequenceResult> results_ ABSL_GUARDED_BY(state_.mutex);

  // Staged rounds as they were taken, the oldest first; a ring, empty before EnqueueStaged.
  std::vector<SubmissionCopy> staged_ ABSL_GUARDED_BY(state_.mutex);
  size_t first_staged_ ABSL_GUARDED_BY(state_.mutex) = 0;
  bool can_stage_ ABSL_GUARDED_BY(state_.mutex) = false;  // EnqueueStaged has succeeded
};

}  // namespace specd
