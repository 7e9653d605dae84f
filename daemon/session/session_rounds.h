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

  // Begins, or stages, a round that was just taken. A round of one piece is then answered. A staged
  // round keeps the submission's memory, and leaves other memory in its place.
  void Do(SubmissionCopy* submission, bool is_alone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // ---- a round that has pieces left (SessionState::between_pieces)

  // Runs the next piece. The last one answers the round.
  void RunPiece(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Answers the round kAborted.
  void CallOff(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Ends the round without an answer, because the engine is gone. Unlike the other calls it leaves
  // the channel alone, so any thread may make it.
  void Drop(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // True if nothing has to be prepared for the submission at this position of the ring.
  bool IsPrepared(uint64_t position) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Builds a part of the masks of a round that waits for its rows. False if none is left.
  bool Prepare(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // Answers the oldest staged round. False if the round is not done, or no round is staged.
  bool Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // ---- embedded mode: the engine is this process. Each takes the lock

  // The draft tokens of the submission with this number are written by work that is on the CUDA
  // stream now.
  absl::Status MarkDrafts(void* stream, uint64_t number);

  // ---- for rounds inside the engine's CUDA graph; each takes the lock

  // OK if rounds can be staged with the session's present roles; otherwise the reason.
  absl::Status CheckStaging();
  // Enqueues launches on a CUDA stream of the engine. They run the oldest staged round.
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences);

 private:
  void ShowTaken(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void End(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  std::span<SequenceResult> ResultsOf(const SubmissionCopy& submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    return {results_.data(), submission.records().size()};
  }
  // Answers with results_, one result for each record. Returns the time of the answer.
  int64_t Answer(const SubmissionCopy& submission, bool called_off = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Counts a round that was answered.
  struct RoundTimes {
    int64_t judged_ns = 0;
    int64_t answered_ns = 0;
  };
  void Count(const SubmissionCopy& submission, const RoundTimes& times, RoundMeters* meters)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void AbortAll(std::span<SequenceResult> results);
  // OK if rounds can be staged with the backend and the bound roles; otherwise the reason.
  absl::Status CheckBoundForStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  SessionMemory& memory_;
  SessionSequences& sequences_;
  std::vector<SequenceResult> results_ ABSL_GUARDED_BY(state_.mutex);

  // How far the round at this position is prepared.
  struct Prepared {
    uint64_t position = 0;
    MaskWarmth warmth = {};
    bool is_done = false;
  };
  Prepared prepared_ ABSL_GUARDED_BY(state_.mutex);
  uint64_t marked_number_ ABSL_GUARDED_BY(state_.mutex) = 0;  // of MarkDrafts; 0: none

  // Staged rounds as they were taken, the oldest first. The vector is a ring, and empty before
  // EnqueueStaged.
  std::vector<SubmissionCopy> staged_ ABSL_GUARDED_BY(state_.mutex);
  size_t first_staged_ ABSL_GUARDED_BY(state_.mutex) = 0;
  bool can_stage_ ABSL_GUARDED_BY(state_.mutex) = false;  // EnqueueStaged has succeeded
};

}  // namespace specd
