// RoundCommitter walks the finish rules over the tokens that a backend confirmed, and commits the
// kept ones to their sequence.
//
// Only this class changes a sequence because of a round. After construction it allocates nothing,
// except where a constraint meets a new state, and for the text of a sequence that has its text
// inside rounds. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/counters.h"
#include "kernels/core/sequence_round.h"
#include "speculative/round/round_scratch.h"
#include "speculative/sequence/finish_rules.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

class RoundCommitter {
 public:
  // The counters must outlive the committer.
  RoundCommitter(std::vector<TokenId> eos_token_ids, LiveCounters* counters)
      : eos_token_ids_(std::move(eos_token_ids)), counters_(*counters) {}

  // Commits a task's outcome to its sequence, which has not finished, and fills the result.
  void Commit(size_t task, RoundScratch* scratch, Sequence* sequence, SequenceResult* result);

  // Answers a task whose lists need more memory than the backend has.
  void RefuseUndecided(OutcomeStatus status, SequenceResult* result);

  // Counts a round. A round that was called off may come again, and is counted then.
  void CountRound(const RoundScratch& scratch);

 private:
  // SequenceGrammar::FindEnd of a sequence with a constraint.
  static int32_t FindGrammarEnd(std::span<const TokenId> confirmed, Sequence* sequence);
  // Advances the constraint over what the walk keeps.
  void CommitGrammar(std::span<const TokenId> confirmed, Sequence* sequence, FinishWalk* walk,
                     SequenceResult* result);
  // Pushes the tokens that the walk keeps into the sequence's text. If a stop string completes
  // there, the walk ends with it.
  static void CommitText(std::span<const TokenId> confirmed, Sequence* sequence, FinishWalk* walk,
                         SequenceResult* result);
  void CountFault(OutcomeStatus status);
  // Says which row of a draft is bad, and why.
  // `path` has the accepted nodes.
  static void NameFault(const TaskOutcome& outcome, const Task& task, const int32_t* path,
                        const SequenceGrammar& grammar, SequenceResult* result);

  const std::vector<TokenId> eos_token_ids_;
  LiveCounters& counters_;
};

}  // namespace specd
