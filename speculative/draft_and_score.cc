#include <algorithm>

#include "speculative/verifier.h"

namespace specd {
namespace {

template <typename Result>
bool Refuse(std::string_view reason, Result* result) {
  result->status = RoundStatus::kInvalid;
  result->reason = reason;
  return false;
}

}  // namespace

absl::Status Verifier::RunCall(const TensorView& rows, int32_t num_tasks) {
  SPECD_CHECK(num_staged_ == 0);
  scratch_.num_tasks = num_tasks;
  RoundBatch batch = BatchOf(rows, &scratch_);
  batch.samples = samples_.data();
  batch.samples_stride = static_cast<int32_t>(kSamplesMax);
  return backend_->Run(batch);
}

// ---- SampleDraft

std::string_view Verifier::FindFault(const DraftInput& input, const Sequence& sequence) const {
  if (input.malformed) return "a count or row index of the record is out of range";
  if (draft_.num_rows == 0) return "no draft tensor is bound";
  if (input.num_prefix < 0 || input.num_prefix > options_.limits.max_draft) {
    return "num_prefix is outside 0 .. max_draft";
  }
  if (input.num_children < 1 || input.num_children > kSamplesMax) {
    return "num_children is outside 1 .. 64";
  }
  if (input.mask_row != -1 && mask_.words == nullptr) {
    return "mask_row was given, but no grammar mask is bound";
  }
  if (!IsMaskRow(input.mask_row)) return "mask_row is outside -1 .. rows of the mask - 1";
  // Verification would read the draft row without the mask, and the law would not be the target's.
  if (input.mask_row != -1 && !sequence.draft_edits) {
    return "mask_row was given, but the sequence was opened without draft_edits";
  }
  return {};
}

bool Verifier::Pack(const DraftInput& input, DraftResult* result, int32_t task_index) {
  *result = DraftResult{};
  result->sequence = input.sequence;
  Sequence* sequence = sequences_.Find(input.sequence);
  if (sequence == nullptr) {
    result->status = RoundStatus::kUnknownSequence;
    return false;
  }
  if (sequence->finish_reason != FinishReason::kNone) {
    result->status = RoundStatus::kFinished;
    return false;
  }
  const std::string_view fault = FindFault(input, *sequence);
  if (!fault.empty()) {
    ++counters_.invalid_records;
    return Refuse(fault, result);
  }
  ChainTask& task = scratch_.tasks[static_cast<size_t>(task_index)];
  task = ChainTask{};
  task.kind = TaskKind::kSampleDraft;
  task.chain.target_rows = &input.row;
  task.target_scale = sequence->draft_scale;
  task.target_filters = sequence->draft_filters;
  task.seed = sequence->seed;
  task.coins = input.coins;
  task.num_coins = input.num_coins;
  task.first_position = sequence->kept_tokens + static_cast<uint32_t>(input.num_prefix);
  task.round_base = sequence->kept_tokens;
  task.sampling = input.sampling;
  task.num_children = input.num_children;
  task.first_node = input.first_node;

  PlaceEdits& place = scratch_.places[static_cast<size_t>(task_index)];
  place = PlaceEdits{};
  if (sequence->draft_edits) {
    if (sequence->last_round != round_stamp_) sequence->rules.BeginRound();
    sequence->last_round = round_stamp_;
    if (!sequence->rules.HasRoom(1)) {
      ++counters_.invalid_records;
      return Refuse("the sequence stands in this call more often than max_draft + 1 times", result);
    }
    task.edits = sequence->rules.sequence_edits();
    const size_t depth = static_cast<size_t>(input.num_prefix);
    sequence->rules.Build({input.prefix, depth}, depth, sequence->kept_tokens, &place);
  }
  place.mask_row = input.mask_row;
  task.places = &place;
  return true;
}

void Verifier::SampleDraft(std::span<const DraftInput> inputs, std::span<DraftResult> results) {
  SPECD_CHECK(inputs.size() <= scratch_.tasks.size());
  SPECD_CHECK(inputs.size() == results.size());
  ++round_stamp_;
  int32_t num_tasks = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Pack(inputs[i], &results[i], num_tasks)) continue;
    scratch_.task_results[static_cast<size_t>(num_tasks)] = static_cast<uint32_t>(i);
    ++num_tasks;
  }
  if (num_tasks == 0) return;

  const bool succeeded = Succeeded(RunCall(draft_, num_tasks));
  for (int32_t i = 0; i < num_tasks; ++i) {
    DraftResult& result = results[scratch_.task_results[static_cast<size_t>(i)]];
    const ChainOutcome& outcome = scratch_.outcomes[static_cast<size_t>(i)];
    if (!succeeded) {
      result.status = RoundStatus::kDeviceError;
    } else if (outcome.status == OutcomeStatus::kNoRoom) {
      ++counters_.invalid_records;
      Refuse(kNoRoomFault.reason, &result);
    } else if (outcome.status != OutcomeStatus::kOk) {
      // Nothing was confirmed: the sequence goes on, and its drafter may bring another row.
      result.status = RoundStatus::kBadDistribution;
      ++counters_.bad_draft_rows;
    } else {
      const size_t first = static_cast<size_t>(i) * size_t{kSamplesMax};
      result.children = {&samples_[first], static_cast<size_t>(outcome.num_tokens)};
    }
  }
}

// ---- Score

std::string_view Verifier::FindFault(const ScoreInput& input) const {
  const auto inside = [this](TokenId id) { return id >= 0 && id < options_.limits.vocab_size; };
  const ScoreRequest& request = input.request;
  if (target_.num_rows == 0) return "no target tensor is bound";
  if (input.num_ids < 0 || input.num_ids > tokens_stride_) {
    return "num_ids is outside 0 .. max_draft + 1";
  }
  if (!std::all_of(input.ids, input.ids + input.num_ids, inside)) {
    return "an id is outside the vocabulary";
  }
  if (!request.enabled) return "the request asks for no scores";
  if (request.num_top < 0 || request.num_top > kLogprobsMax) return "num_top is outside 0 .. 64";
  if (request.num_chosen < 0 || static_cast<size_t>(request.num_chosen) > kLogprobTokenIdsMax) {
    return "num_chosen is outside 0 .. 64";
  }
  if (!std::all_of(request.chosen, request.chosen + request.num_chosen, inside)) {
    return "a chosen id is outside the vocabulary";
  }
  return {};
}

bool Verifier::Pack(const ScoreInput& input, ScoreResult* result, int32_t task_index) {
  *result = ScoreResult{};
  const std::string_view fault = FindFault(input);
  if (!fault.empty()) {
    ++counters_.invalid_records;
    return Refuse(fault, result);
  }
  if (input.num_ids == 0) return false;
  ChainTask& task = scratch_.tasks[static_cast<size_t>(task_index)];
  task = ChainTask{};
  task.kind = TaskKind::kScore;
  task.chain.num_drafts = input.num_ids;
  task.chain.tokens = input.ids;
  task.chain.target_rows = input.rows;
  task.target_scale = ScaleFor(1.0);
  task.scores = input.request;
  return true;
}

void Verifier::Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results) {
  SPECD_CHECK(inputs.size() <= scratch_.tasks.size());
  SPECD_CHECK(inputs.size() == results.size());
  int32_t num_tasks = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Pack(inputs[i], &results[i], num_tasks)) continue;
    scratch_.task_results[static_cast<size_t>(num_tasks)] = static_cast<uint32_t>(i);
    ++num_tasks;
  }
  if (num_tasks == 0) return;

  const bool succeeded = Succeeded(RunCall(target_, num_tasks));
  for (int32_t i = 0; i < num_tasks; ++i) {
    const size_t index = scratch_.task_results[static_cast<size_t>(i)];
    ScoreResult& result = results[index];
    const ChainOutcome& outcome = scratch_.outcomes[static_cast<size_t>(i)];
    if (!succeeded) {
      result.status = RoundStatus::kDeviceError;
      continue;
    }
    if (outcome.status != OutcomeStatus::kOk) {
      result.status = RoundStatus::kBadDistribution;
      ++counters_.bad_target_rows;
    }
    result.num_scored = outcome.num_tokens;
    result.scores_per_token = NumScores(inputs[index].request);
    result.scores = CompactScores(&scratch_, i, result.num_scored, result.scores_per_token);
  }
}

}  // namespace specd
