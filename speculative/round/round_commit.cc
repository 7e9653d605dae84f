#include "speculative/round/round_commit.h"

#include <algorithm>

#include "speculative/sequence/finish_rules.h"

namespace specd {
namespace {

// The first score of a token is its own.
void AddLogprobs(const SequenceResult& result, LogprobSum* sum) {
  if (!sum->enabled()) return;
  for (uint32_t i = 0; i < result.num_kept; ++i) {
    sum->Add(result.scores[i * result.scores_per_token].value);
  }
}

}  // namespace

void RoundCommitter::Commit(size_t task, RoundScratch* scratch, Sequence* sequence,
                            SequenceResult* result) {
  const TaskOutcome& outcome = scratch->outcomes[task];
  if (IsUndecided(outcome.status)) return RefuseUndecided(outcome.status, result);
  const TokenId* tokens = scratch->TokensOf(task);
  const std::span<const TokenId> confirmed = {tokens, static_cast<size_t>(outcome.num_tokens)};
  SequenceGrammar& grammar = sequence->grammar;
  const FinishRules rules = {
      .stop_token_ids = sequence->stop_token_ids,
      .eos_token_ids = sequence->ignore_eos ? std::span<const TokenId>{} : eos_token_ids_,
      .min_tokens = sequence->min_tokens,
      .max_tokens = sequence->max_tokens,
      .grammar_end = grammar.empty() ? 0 : FindGrammarEnd(confirmed, sequence)};
  FinishWalk walk = WalkFinishRules(rules, sequence->kept_tokens, confirmed);
  // A bad row counts only if the sequence had not finished on an earlier token.
  if (walk.reason == FinishReason::kNone && outcome.status != OutcomeStatus::kOk) {
    walk.reason = FinishReason::kError;
    result->status = RoundStatus::kBadDistribution;
    CountFault(outcome.status);
    NameFault(outcome, scratch->tasks[task], scratch->PathOf(task), grammar, result);
  }
  if (!grammar.empty()) CommitGrammar(confirmed, sequence, &walk, result);
  result->num_accepted = static_cast<uint32_t>(std::min(outcome.num_accepted, walk.num_kept));
  if (!sequence->text.empty()) CommitText(confirmed, sequence, &walk, result);
  sequence->kept_tokens += static_cast<uint32_t>(walk.num_kept);
  sequence->finish_reason = walk.reason;
  sequence->stop_token = walk.stop_token;
  sequence->rules.Commit({tokens, static_cast<size_t>(walk.num_kept)});

  result->finish_reason = walk.reason;
  result->num_drafts = static_cast<uint32_t>(outcome.num_drafts);
  result->num_accepted = std::min(result->num_accepted, static_cast<uint32_t>(walk.num_kept));
  result->num_kept = static_cast<uint32_t>(walk.num_kept);
  result->total_kept = sequence->kept_tokens;
  result->stop_token = walk.stop_token;
  result->tokens = tokens;
  result->path = scratch->PathOf(task);
  const int32_t scores_per_token = NumScores(sequence->scores);
  result->scores_per_token = static_cast<uint32_t>(scores_per_token);
  if (scores_per_token > 0) {
    result->scores = scratch->CompactScores(task, walk.num_kept, scores_per_token);
  }
  AddLogprobs(*result, &sequence->logprob_sum);
  result->cumulative_logprob = sequence->logprob_sum.value();

  ++counters_.sequence_rounds;
  counters_.drafted += result->num_drafts;
  counters_.accepted += result->num_accepted;
  counters_.kept += result->num_kept;
  // These count events in the kernel, also those after the token that finished the sequence.
  counters_.empty_residuals += outcome.empty_residuals;
  counters_.invalid_drafts += outcome.invalid_drafts;
  counters_.point_masses += outcome.point_masses;
}

// An exception says that no memory is left. It must end this sequence alone.
int32_t RoundCommitter::FindGrammarEnd(std::span<const TokenId> confirmed, Sequence* sequence) {
  if (sequence->grammar_failed) return 0;
  try {
    return sequence->grammar.FindEnd(confirmed);
  } catch (...) {
    sequence->grammar_failed = true;
    return 0;
  }
}

void RoundCommitter::CommitGrammar(std::span<const TokenId> confirmed, Sequence* sequence,
                                   FinishWalk* walk, SequenceResult* result) {
  const size_t num_kept = walk->num_kept;
  size_t num_taken = 0;
  try {
    if (!sequence->grammar_failed) num_taken = sequence->grammar.Commit(confirmed.first(num_kept));
  } catch (...) {
    sequence->grammar_failed = true;
    num_taken = 0;
  }
  if (num_taken == num_kept && !sequence->grammar_failed) return;
  // No forbidden token is kept, even if the backend of the constraint is wrong.
  *walk = {.num_kept = static_cast<int32_t>(num_taken), .reason = FinishReason::kError};
  result->status = RoundStatus::kBadDistribution;
  result->bad_row = kNoRow;
  if (sequence->grammar_failed) {
    result->refusal = RefusalOf(grammar::MatcherFault::kNoMemory);
    return;
  }
  result->refusal = RefusalOf(sequence->grammar.commit_fault());
  if (result->refusal == Refusal::kNone) result->refusal = Refusal::kBadToken;
  CountFault(OutcomeStatus::kBadToken);
}

// A stop string completes at a kept token, so it outranks the walk's reason at the last one, and a
// fault behind it does not count.
void RoundCommitter::CommitText(std::span<const TokenId> confirmed, Sequence* sequence,
                                FinishWalk* walk, SequenceResult* result) {
  SequenceText& text = sequence->text;
  try {
    const std::optional<int32_t> stop =
        text.Push({.ids = confirmed.first(walk->num_kept),
                   .num_accepted = static_cast<int32_t>(result->num_accepted),
                   .ends_with_stop = walk->stop_token != kNoToken});
    if (stop.has_value()) {
      *walk = {.num_kept = *stop, .reason = FinishReason::kStop};
      sequence->by_stop_string = true;
      result->status = RoundStatus::kOk;
      result->refusal = Refusal::kNone;
      result->bad_row = kNoRow;
    } else if (walk->reason != FinishReason::kNone) {
      text.Finish();
    }
  } catch (...) {
    // No memory is left. That must end this sequence alone.
    *walk = {.num_kept = text.num_pushed(), .reason = FinishReason::kError};
    result->status = RoundStatus::kBadDistribution;
  }
}

// A place that a constraint left without a mask has a row all the same; the row is not to blame.
void RoundCommitter::NameFault(const TaskOutcome& outcome, const Task& task, const int32_t* path,
                               const SequenceGrammar& grammar, SequenceResult* result) {
  const Draft& draft = task.draft;
  const int32_t depth = outcome.num_tokens;
  const bool is_chain = (draft.parents == nullptr && !task.parents_by_slot) || depth == 0;
  const size_t place = is_chain ? depth : PlaceAfter(path[depth - 1]);
  const bool is_target = outcome.status == OutcomeStatus::kBadTargetRow;
  if (is_target && !grammar.empty()) result->refusal = RefusalOf(grammar.FaultAt(place));
  if (result->refusal != Refusal::kNone) return;
  result->refusal = RefusalOf(outcome.status, outcome.fault);
  if (outcome.status == OutcomeStatus::kBadToken || outcome.fault == RowFault::kShare) return;
  // All drawn children of a place name one row.
  const int32_t index = is_target || task.parents_by_slot
                            ? static_cast<int32_t>(place)
                            : NextChild(draft, static_cast<int32_t>(place), kRoot);
  const uint32_t* const rows = is_target ? draft.target_rows : draft.draft_rows;
  if (rows != nullptr && index != kRoot) result->bad_row = rows[index];
}

void RoundCommitter::CountFault(OutcomeStatus status) {
  switch (status) {
    case OutcomeStatus::kOk:
    case OutcomeStatus::kNoRoom:
    case OutcomeStatus::kBadParents:
    case OutcomeStatus::kLongPath:
    case OutcomeStatus::kMixedKinds:
      break;
    case OutcomeStatus::kBadTargetRow:
      ++counters_.bad_target_rows;
      break;
    case OutcomeStatus::kBadDraftRow:
      ++counters_.bad_draft_rows;
      break;
    case OutcomeStatus::kBadToken:
      ++counters_.bad_tokens;
      break;
  }
}

void RoundCommitter::RefuseUndecided(OutcomeStatus status, SequenceResult* result) {
  result->status = RoundStatus::kInvalid;
  result->refusal = RefusalOf(status);
  result->method = VerifyMethod::kAuto;  // nothing was verified
  ++counters_.invalid_records;
}

void RoundCommitter::CountRound(const RoundScratch& scratch) {
  ++counters_.rounds;
  counters_.discarded += scratch.num_discarded;
}

}  // namespace specd
