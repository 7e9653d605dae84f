// SessionCalls answers the calls of one session: draft tokens, scores of given ids, coins, forced
// ids.
//
// A call is done as a whole or refused as a whole. If a request has a number outside its range, the
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

  // Does a call that was just taken, and answers the call.
  void Do(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

 private:
  absl::Status SampleDraft(std::span<const DraftInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status Score(std::span<const ScoreInput> inputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Gives the sequence these coins in place of its own, for tests and replay.
  absl::Status SetCoins(const CoinsCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status FindForced(std::span<const ForcedInput> inputs)
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
  // To calls for scores and for forced ids.
  std::vector<SequenceResult> answers_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
