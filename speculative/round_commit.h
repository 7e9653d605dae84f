// RoundCommitter: walks the finish rules over the tokens that a backend confirmed, and keeps what
// they leave.
//
// The only place where a round changes a sequence. After construction nothing is allocated. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/sequence_round.h"
#include "speculative/round_scratch.h"
#include "speculative/sequence_table.h"
#include "speculative/verifier_counters.h"

namespace specd {

class RoundCommitter {
 public:
  // The counters must outlive the committer.
  RoundCommitter(std::vector<TokenId> eos_token_ids, VerifierCounters* counters)
      : eos_token_ids_(std::move(eos_token_ids)), counters_(*counters) {}

  // Commits a task's outcome to its sequence, which goes on, and fills the result.
  void Commit(size_t task, RoundScratch* scratch, Sequence* sequence, SequenceResult* result);

  // Answers a task whose lists the backend has no memory for.
  void RefuseForRoom(SequenceResult* result);

  // Counts a round. One that was called off may come again, and is counted then.
  void CountRound(const RoundScratch& scratch);

 private:
  void CountFault(OutcomeStatus status);

  const std::vector<TokenId> eos_token_ids_;
  VerifierCounters& counters_;
};

}  // namespace specd
