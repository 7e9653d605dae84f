#include <algorithm>
#include <cstring>

#include "speculative/verifier.h"

namespace specd {
namespace {

// The drafts before the first kNoToken: -1 says that no token was drawn there. Where only the
// device knows them, as many as there may be.
int32_t NumDrawn(const DraftChain& chain) {
  if (chain.tokens == nullptr) return chain.num_drafts;
  const TokenId* end = chain.tokens + chain.num_drafts;
  return static_cast<int32_t>(std::find(chain.tokens, end, kNoToken) - chain.tokens);
}

// Of all kinds, behind a kNoToken too: how a token would have been drawn says nothing of which.
bool AnySampled(const DraftChain& chain) {
  if (chain.kinds == nullptr) return false;
  const DraftKind* end = chain.kinds + chain.num_drafts;
  return std::find(chain.kinds, end, DraftKind::kSampled) != end;
}

bool NeedsDraftRows(VerifyMethod method, bool any_sampled) {
  return any_sampled && (method == VerifyMethod::kToken || method == VerifyMethod::kBlock);
}

// Rows that are all -1 constrain nothing: they are as good as none.
bool IsMasked(const RoundInput& input) {
  if (input.mask_rows == nullptr) return false;
  const int32_t* end = input.mask_rows + input.chain.num_drafts + 1;
  return std::any_of(input.mask_rows, end, [](int32_t row) { return row != -1; });
}

// The first score of a token is its own.
void AddLogprobs(const RoundResult& result, LogprobSum* sum) {
  if (!sum->enabled()) return;
  for (uint32_t i = 0; i < result.num_kept; ++i) {
    sum->Add(result.scores[i * static_cast<uint32_t>(result.scores_per_token)].value);
  }
}

}  // namespace

Sequence* Verifier::FindRunning(SequenceHandle handle, RoundResult* result) {
  *result = RoundResult{};
  result->sequence = handle;
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr) {
    result->status = RoundStatus::kUnknownSequence;
    return nullptr;
  }
  result->finish_reason = sequence->finish_reason;
  result->total_kept = sequence->kept_tokens;
  result->stop_token = sequence->stop_token;
  result->cumulative_logprob = sequence->logprob_sum.value();
  if (sequence->finish_reason == FinishReason::kNone) return sequence;
  result->status = RoundStatus::kFinished;
  return nullptr;
}

RoundFault Verifier::FindFault(const RoundInput& input, const Sequence& sequence) const {
  const DraftChain& chain = input.chain;
  if (input.malformed) return {"a count, kind or row index of the record is out of range"};
  // A second record of the same sequence has no defined place in the output.
  if (sequence.last_round == round_stamp_) return {"the sequence stands in this round twice"};
  if (input.discard) return {};
  if (chain.num_drafts < 0 || chain.num_drafts > options_.limits.max_draft) {
    return {"num_drafts is outside 0 .. max_draft"};
  }
  if ((chain.draft_weights == nullptr) != (chain.draft_masses == nullptr)) {
    return {"a side channel needs both draft_weights and draft_masses"};
  }
  if (IsMasked(input)) {
    if (mask_.words == nullptr) return {"mask_rows were given, but no grammar mask is bound"};
    if (target_.rules.kind == RowKind::kFinalProbabilities) {
      return {"mask_rows cannot be honoured: the target rows are final probabilities"};
    }
    const bool inside = std::all_of(input.mask_rows, input.mask_rows + chain.num_drafts + 1,
                                    [this](int32_t row) { return IsMaskRow(row); });
    if (!inside) return {"a mask row is outside -1 .. rows of the mask - 1"};
  }
  if (input.drafts_by_slot && draft_tokens_.ids == nullptr) {
    return {"drafts_by_slot was given, but no draft tokens are bound"};
  }
  // What only the device knows cannot be looked at here.
  if (sequence.rules.has_processors() &&
      (input.drafts_by_slot || sequences_.IsHeld(SlotOf(sequence.handle)))) {
    return {
        "bad words, n-gram, thinking and custom processors need the draft tokens, and every "
        "token before them, on the host",
        RoundDetail::kHostTokens};
  }
  if (chain.target_argmax != nullptr) return {FindArgmaxFault(input, sequence)};
  if (chain.target_rows == nullptr || target_.num_rows == 0) return {"there are no target rows"};
  const bool any_sampled = AnySampled(chain);
  if (NeedsDraftRows(ResolveMethod(sequence.method, any_sampled), any_sampled) &&
      (chain.draft_rows == nullptr || draft_.num_rows == 0)) {
    return {"sampled drafts need the draft rows they were drawn from"};
  }
  return {};
}

std::string_view Verifier::FindArgmaxFault(const RoundInput& input,
                                           const Sequence& sequence) const {
  if (sequence.method != VerifyMethod::kGreedy) {
    return "target_argmax is for greedy sequences only; give target rows";
  }
  if (!sequence.rules.empty() || IsMasked(input)) {
    return "target_argmax cannot be masked, biased or penalised; give target rows";
  }
  if (sequence.scores.enabled) return "target_argmax has no logprobs; give target rows";
  const TokenId* ids = input.chain.target_argmax;
  const bool inside = std::all_of(ids, ids + input.chain.num_drafts + 1, [this](TokenId id) {
    return id >= 0 && id < options_.limits.vocab_size;
  });
  return inside ? std::string_view{} : "an id of target_argmax is outside the vocabulary";
}

bool Verifier::Pack(const RoundInput& input, RoundScratch* scratch, RoundResult* result) {
  Sequence* sequence = FindRunning(input.sequence, result);
  if (sequence == nullptr) return false;
  result->fault = FindFault(input, *sequence);
  if (!result->fault.reason.empty()) {
    result->status = RoundStatus::kInvalid;
    ++counters_.invalid_records;
    return false;
  }
  sequence->last_round = round_stamp_;
  if (input.discard) {
    ++scratch->num_discarded;
    return false;
  }
  const auto task_index = static_cast<size_t>(scratch->num_tasks++);
  ChainTask& task = scratch->tasks[task_index];
  task = ChainTask{};
  task.chain = input.chain;
  task.chain.num_drafts = NumDrawn(input.chain);
  task.kind = TaskKind::kVerify;
  task.method = ResolveMethod(sequence->method, AnySampled(input.chain));
  task.target_scale = sequence->target_scale;
  task.draft_scale = sequence->draft_scale;
  task.seed = sequence->seed;
  task.coins = input.coins;
  task.num_coins = input.num_coins;
  task.first_position = sequence->kept_tokens;
  task.round_base = sequence->kept_tokens;
  task.slot = SlotOf(sequence->handle);
  task.drafts_by_slot = input.drafts_by_slot;
  task.continues = sequences_.IsHeld(task.slot);
  task.min_tokens = static_cast<uint32_t>(sequence->min_tokens);
  task.target_filters = sequence->target_filters;
  task.draft_filters = sequence->draft_filters;
  task.draft_edits = sequence->draft_edits;
  task.scores = sequence->scores;
  task.scores.chosen = sequence->logprob_token_ids.data();
  PackPlaces(input, sequence, &task,
             &scratch->places[task_index * static_cast<size_t>(tokens_stride_)]);
  return true;
}

void Verifier::PackPlaces(const RoundInput& input, Sequence* sequence, ChainTask* task,
                          PlaceEdits* places) {
  task->edits = sequence->rules.sequence_edits();
  const bool is_masked = IsMasked(input);
  const size_t num_drafts = static_cast<size_t>(task->chain.num_drafts);
  // What depends on tokens that only the device knows is added there.
  const bool is_resolved_here = !task->drafts_by_slot && !task->continues;
  if (is_resolved_here && sequence->rules.NeedsPlaces(sequence->kept_tokens)) {
    sequence->rules.BeginRound();
    sequence->rules.Build({task->chain.tokens, num_drafts}, 0, sequence->kept_tokens, places);
  } else if (is_masked) {
    std::fill_n(places, num_drafts + 1, PlaceEdits{});
  } else {
    return;
  }
  task->places = places;
  if (!is_masked) return;
  for (size_t i = 0; i <= num_drafts; ++i) places[i].mask_row = input.mask_rows[i];
}

// Scores lie a batch-wide stride apart; a result has them side by side.
TokenScore* Verifier::CompactScores(RoundScratch* scratch, int32_t task_index, int32_t num_tokens,
                                    int32_t scores_per_token) {
  const int32_t stride = scratch->scores_stride;
  TokenScore* scores = scratch->scores.data() + int64_t{task_index} * tokens_stride_ * stride;
  for (int32_t j = 1; j < num_tokens && scores_per_token < stride; ++j) {
    std::memmove(scores + j * scores_per_token, scores + j * stride,
                 static_cast<size_t>(scores_per_token) * sizeof(TokenScore));
  }
  return scores;
}

void Verifier::RefuseForRoom(RoundResult* result) {
  result->status = RoundStatus::kInvalid;
  result->fault = kNoRoomFault;
  ++counters_.invalid_records;
}

void Verifier::Commit(int32_t task_index, RoundScratch* scratch, RoundResult* result) {
  const ChainOutcome& outcome = scratch->outcomes[static_cast<size_t>(task_index)];
  if (outcome.status == OutcomeStatus::kNoRoom) return RefuseForRoom(result);
  const TokenId* tokens = &scratch->tokens[static_cast<size_t>(task_index * tokens_stride_)];
  Sequence* sequence = sequences_.Find(result->sequence);
  FinishRules rules;
  rules.stop_token_ids = sequence->stop_token_ids;
  if (!sequence->ignore_eos) rules.eos_token_ids = options_.eos_token_ids;
  rules.min_tokens = sequence->min_tokens;
  rules.max_tokens = sequence->max_tokens;
  FinishWalk walk = WalkFinishRules(rules, sequence->kept_tokens,
                                    {tokens, static_cast<size_t>(outcome.num_tokens)});
  // A bad row counts only if the sequence had not finished on a token before it.
  if (walk.reason == FinishReason::kNone && outcome.status != OutcomeStatus::kOk) {
    walk.reason = FinishReason::kError;
    result->status = RoundStatus::kBadDistribution;
    switch (outcome.status) {
      case OutcomeStatus::kOk:
      case OutcomeStatus::kNoRoom:
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
  sequence->kept_tokens += static_cast<uint32_t>(walk.num_kept);
  sequence->finish_reason = walk.reason;
  sequence->stop_token = walk.stop_token;
  sequence->rules.Commit({tokens, static_cast<size_t>(walk.num_kept)});

  result->finish_reason = walk.reason;
  result->num_accepted = static_cast<uint32_t>(std::min(outcome.num_accepted, walk.num_kept));
  result->num_kept = static_cast<uint32_t>(walk.num_kept);
  result->total_kept = sequence->kept_tokens;
  result->stop_token = walk.stop_token;
  result->tokens = tokens;
  result->scores_per_token = NumScores(sequence->scores);
  if (result->scores_per_token > 0) {
    result->scores = CompactScores(scratch, task_index, walk.num_kept, result->scores_per_token);
  }
  AddLogprobs(*result, &sequence->logprob_sum);
  result->cumulative_logprob = sequence->logprob_sum.value();

  ++counters_.sequence_rounds;
  counters_.drafted += static_cast<uint64_t>(outcome.num_drafts);
  counters_.accepted += result->num_accepted;
  counters_.kept += result->num_kept;
  // What happened in the kernel, also beyond the token that finished the sequence.
  counters_.empty_residuals += outcome.empty_residuals;
  counters_.invalid_drafts += outcome.invalid_drafts;
  counters_.point_masses += outcome.point_masses;
}

RoundBatch Verifier::BatchOf(const TensorView& target, RoundScratch* scratch) {
  scratch->scores_stride = 0;
  for (int32_t i = 0; i < scratch->num_tasks; ++i) {
    scratch->scores_stride =
        std::max(scratch->scores_stride, NumScores(scratch->tasks[static_cast<size_t>(i)].scores));
  }
  RoundBatch batch;
  batch.target = target;
  batch.draft = draft_;
  batch.tasks = scratch->tasks.data();
  batch.num_tasks = scratch->num_tasks;
  batch.outcomes = scratch->outcomes.data();
  batch.tokens = scratch->tokens.data();
  batch.tokens_stride = tokens_stride_;
  batch.mask = mask_;
  batch.scores = scratch->scores.data();
  batch.scores_stride = scratch->scores_stride;
  batch.next_tokens = next_tokens_.data();
  batch.num_next_tokens = num_next_tokens_;
  batch.draft_tokens = draft_tokens_;
  return batch;
}

void Verifier::PackRound(std::span<const RoundInput> inputs, RoundScratch* scratch,
                         std::span<RoundResult> results) {
  SPECD_CHECK(inputs.size() <= scratch->tasks.size());
  SPECD_CHECK(inputs.size() == results.size());
  ++round_stamp_;
  scratch->num_tasks = 0;
  scratch->num_discarded = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto task_index = static_cast<size_t>(scratch->num_tasks);
    if (Pack(inputs[i], scratch, &results[i])) {
      scratch->task_results[task_index] = static_cast<uint32_t>(i);
    }
  }
}

void Verifier::VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results) {
  SPECD_CHECK(num_staged_ == 0);
  PackRound(inputs, &scratch_, results);
  RoundStatus failure = RoundStatus::kOk;
  if (scratch_.num_tasks > 0 && !Succeeded(backend_->Run(BatchOf(target_, &scratch_)))) {
    failure = RoundStatus::kDeviceError;
  }
  CommitRound(failure, &scratch_, results);
}

void Verifier::VerifyRound(std::span<const RoundInput> inputs, std::span<RoundResult> results,
                           absl::FunctionRef<bool()> may_commit) {
  SPECD_CHECK(num_staged_ == 0);
  PackRound(inputs, &scratch_, results);
  RoundStatus failure = RoundStatus::kOk;
  if (scratch_.num_tasks > 0) failure = RunIfLet(BatchOf(target_, &scratch_), may_commit);
  CommitRound(failure, &scratch_, results);
}

bool Verifier::Succeeded(const absl::Status& status) {
  if (!status.ok()) failure_ = status;
  return status.ok();
}

RoundStatus Verifier::RunIfLet(const RoundBatch& batch, absl::FunctionRef<bool()> may_commit) {
  // Whoever calls the round off may write next tokens itself, and ours must not come after them.
  RoundBatch held_back = batch;
  held_back.num_next_tokens = 0;
  if (!Succeeded(backend_->Run(held_back))) return RoundStatus::kDeviceError;
  if (!may_commit()) return RoundStatus::kAborted;
  if (batch.num_next_tokens == 0) return RoundStatus::kOk;
  const bool written = Succeeded(backend_->WriteNextTokens(batch));
  return written ? RoundStatus::kOk : RoundStatus::kDeviceError;
}

void Verifier::CommitRound(RoundStatus failure, RoundScratch* scratch,
                           std::span<RoundResult> results) {
  for (int32_t i = 0; i < scratch->num_tasks; ++i) {
    RoundResult& result = results[scratch->task_results[static_cast<size_t>(i)]];
    if (failure != RoundStatus::kOk) {
      result.status = failure;
    } else if (FindRunning(result.sequence, &result) != nullptr) {
      Commit(i, scratch, &result);
    }
  }
  // A round that was called off may come again, and is counted then.
  if (failure == RoundStatus::kAborted) return;
  ++counters_.rounds;
  counters_.discarded += scratch->num_discarded;
}

}  // namespace specd
