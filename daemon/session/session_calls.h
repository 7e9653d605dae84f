// SessionCalls answers the calls of one session: draft tokens, scores of given ids, coins, forced
// ids.
//
// A call is done as a whole or refused as a whole. A call that reads many rows runs in pieces, as a
// round does. If a request has a number outside its range, the
// answer names the first such request. These checks are the one edge for the numbers of calls. The
// verify thread calls Do under the session's lock.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_state.h"

namespace specd {

class SessionCalls {
 public:
  SessionCalls(SessionState* state, const SessionMemory* memory);

  // Does a call that was just taken, and answers the call; if the call reads many rows, runs its
  // first piece.
  void Do(const SubmissionCopy& submission, bool is_alone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  // ---- a call that has pieces left (SessionState::between_pieces)

  // Runs the next piece, and answers the call after the last one.
  void RunPiece(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Refuses the rest: the daemon stops, or a page of the engine's memory was missing.
  void CallOff(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // The engine is gone: there is no answer.
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

 private:
  // Checks the numbers of a call that reads rows, and packs it.
  absl::Status Begin(const SubmissionCopy& submission, bool is_alone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status EndSampleDraft(std::span<const DraftInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status EndScore(std::span<const ScoreInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void Answer(const SubmissionCopy& submission, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Gives the sequence these coins in place of its own, for tests and replay.
  absl::Status SetCoins(const CoinsCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status EndForced(std::span<const ForcedInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // True if a piece is left. A piece finds the forced ids of one request.
  bool RunForcedPiece(std::span<const ForcedInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status CheckForcedInput(const ForcedInput& input) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status CheckDraftInput(const DraftInput& input) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status CheckScoreInput(const ScoreInput& input) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void NoteFailure(RoundStatus status);

  SessionState& state_;
  const SessionMemory& memory_;
  std::vector<DraftResult> draft_results_ ABSL_GUARDED_BY(state_.mutex);
  std::vector<ScoreResult> score_results_ ABSL_GUARDED_BY(state_.mutex);
  std::vector<ForcedResult> forced_results_ ABSL_GUARDED_BY(state_.mutex);
  size_t num_forced_ ABSL_GUARDED_BY(state_.mutex) = 0;  // requests of the call that are done
  // To calls for scores and for forced ids.
  std::vector<SequenceResult> answers_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
