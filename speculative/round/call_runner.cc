#include "speculative/round/call_runner.h"

#include <algorithm>
#include <memory>

#include "kernels/core/check.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

constexpr std::string_view kNoMaskMemory =
    "no memory is left for the masks of its constraint; its next round ends the sequence";

}  // namespace

CallRunner::CallRunner(const BackendLimits& limits, const Parts& parts, const PieceBound& bound)
    : limits_(limits),
      parts_(parts),
      pieces_(bound),
      samples_(static_cast<size_t>(limits.max_batch) * size_t{kSamplesMax}),
      forced_ids_(static_cast<size_t>(limits.max_batch) *
                  static_cast<size_t>(limits.max_output())) {
  mask_jobs_.reserve(limits.max_batch);
  masks_.reserve(limits.max_batch);
  held_.reserve(limits.max_batch);
}

void CallRunner::Cut(const TensorView& rows, bool is_alone) {
  RoundBatch batch = parts_.packer->BatchOf(rows, parts_.scratch);
  batch.samples = samples_.data();
  batch.samples_stride = static_cast<int32_t>(kSamplesMax);
  pieces_.Begin(batch, is_alone ? kAloneFactor : 1);
  status_ = absl::OkStatus();
}

bool CallRunner::RunPiece() {
  if (pieces_.done() || !status_.ok()) return false;
  if (!FillMasks()) return true;
  status_ = parts_.backend->Run(pieces_.Next());
  pieces_.Advance();
  return !pieces_.done() && status_.ok();
}

bool CallRunner::FillMasks() {
  grammar::WorkSlice slice = MaskFiller::kSlice;
  while (masks_.size() < mask_jobs_.size()) {
    const MaskJob& job = mask_jobs_[masks_.size()];
    std::optional<grammar::MaskRow> row = grammar::MaskRow();
    try {
      if (!job.sequence->grammar_failed) {
        row = job.sequence->grammar.FillAfter(job.prefix, job.place, &slice);
      }
    } catch (...) {
      job.sequence->grammar_failed = true;
    }
    if (!row.has_value()) return false;
    masks_.push_back(*std::move(row));
  }
  return true;
}

// Tasks point into their sequences.
void CallRunner::Hold(std::span<const DraftInput> inputs) {
  for (int32_t i = 0; i < parts_.scratch->num_tasks; ++i) {
    held_.push_back(SlotOf(inputs[parts_.scratch->task_results[i]].sequence));
    parts_.sequences->Hold(held_.back());
  }
}

void CallRunner::Release() {
  for (const uint32_t slot : held_) parts_.sequences->Release(slot);
  held_.clear();
}

template <class Result>
bool CallRunner::Refuse(std::string_view reason, Result* result) {
  ++parts_.counters->invalid_records;
  result->status = RoundStatus::kInvalid;
  result->reason = reason;
  return false;
}

template <class Input, class Result>
void CallRunner::PackAll(std::span<const Input> inputs, std::span<Result> results) {
  RoundScratch& scratch = *parts_.scratch;
  SPECD_CHECK(inputs.size() <= scratch.tasks.size());
  SPECD_CHECK(inputs.size() == results.size());
  stamp_ = parts_.sequences->NextStamp();
  scratch.num_tasks = 0;
  mask_jobs_.clear();
  masks_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Pack(inputs[i], &results[i])) continue;
    scratch.task_results[scratch.num_tasks] = static_cast<uint32_t>(i);
    ++scratch.num_tasks;
  }
}

// ---- SampleDraft

namespace {

// SGLang's generator has one draw at a position, and no coins.
bool TakesCoins(const DraftInput& input) {
  if (input.sampling == DraftSampling::kTopK) return false;
  return input.sampling != DraftSampling::kWithReplacement || input.num_children > 1;
}
constexpr std::string_view kOneDraw =
    "rng = sglang has one draw at a position: ask for 1 child with replacement, or for the top ids";

}  // namespace

bool CallRunner::Pack(const DraftInput& input, DraftResult* result) {
  *result = DraftResult{};
  result->sequence = input.sequence;
  Sequence* sequence = parts_.sequences->Find(input.sequence);
  if (sequence == nullptr) {
    if (!parts_.sequences->MayHaveGivenOut(input.sequence)) {
      return Refuse(RefusalText(Refusal::kSequence), result);
    }
    result->status = RoundStatus::kUnknownSequence;
    return false;
  }
  if (const RoundStatus status = RunningStatus(*sequence); status != RoundStatus::kOk) {
    result->status = status;
    return false;
  }
  SPECD_CHECK(input.row < parts_.rows->draft.num_rows);
  SPECD_CHECK(input.num_prefix >= 0 && input.num_prefix <= limits_.max_draft);
  SPECD_CHECK(input.num_children >= 1 && input.num_children <= kSamplesMax);
  SPECD_CHECK(parts_.rows->IsMaskRow(input.mask_row));
  // Verification would read the draft row without the mask. The output would then not have the
  // distribution of the target.
  if (input.mask_row != -1 && !sequence->draft_edits) {
    return Refuse("mask_row was given, but the sequence was opened without draft_edits", result);
  }
  if (sequence->rng == Rng::kSglang && TakesCoins(input)) return Refuse(kOneDraw, result);
  const size_t task_index = parts_.scratch->num_tasks;
  PlaceEdits& place = *parts_.scratch->PlacesOf(task_index);
  place = PlaceEdits{};
  Task& task = parts_.scratch->tasks[task_index];
  task = Task{};
  task.kind = TaskKind::kSampleDraft;
  task.draft.target_rows = &input.row;
  task.target_scale = sequence->draft_scale;
  task.target_filters = sequence->draft_filters;
  task.seed = sequence->seed;
  task.coins = sequence->coins.data();
  task.num_coins = static_cast<int32_t>(sequence->coins.size());
  task.first_position = sequence->kept_tokens + static_cast<uint32_t>(input.num_prefix);
  task.round_base = sequence->kept_tokens;
  task.sampling = input.sampling;
  task.num_children = input.num_children;
  task.first_node = input.first_node;
  task.rng = sequence->rng;
  task.rng_offset = sequence->rng_offset;
  if (sequence->draft_edits) {
    if (sequence->last_round != stamp_) sequence->rules.BeginRound();
    sequence->last_round = stamp_;
    if (!sequence->rules.HasRoom(1)) {
      return Refuse("the sequence stands in this call more often than max_draft + 1 times", result);
    }
    task.edits = sequence->rules.sequence_edits();
    const Draft prefix = {.num_nodes = input.num_prefix, .tokens = input.prefix};
    sequence->rules.Build(prefix, prefix.num_nodes, sequence->kept_tokens, &place);
    if (!sequence->grammar.empty()) {
      if (input.mask_row != -1) return Refuse(RefusalText(Refusal::kTwoMasks), result);
      if (sequence->grammar_failed) return Refuse(kNoMaskMemory, result);
      mask_jobs_.push_back({.sequence = sequence,
                            .prefix = {input.prefix, static_cast<size_t>(input.num_prefix)},
                            .place = &place});
    }
  }
  place.mask_row = input.mask_row;
  task.places = &place;
  return true;
}

void CallRunner::Begin(std::span<const DraftInput> inputs, std::span<DraftResult> results,
                       bool is_alone) {
  PackAll(inputs, results);
  Cut(parts_.rows->draft, is_alone);
  if (const bool is_filled = FillMasks(); !is_filled || pieces_.is_cut()) Hold(inputs);
}

absl::Status CallRunner::End(std::span<DraftResult> results) {
  const RoundScratch& scratch = *parts_.scratch;
  for (size_t i = 0; i < static_cast<size_t>(scratch.num_tasks); ++i) {
    DraftResult& result = results[scratch.task_results[i]];
    if (status_.ok()) {
      Answer(i, &result);
    } else {
      result.status = RoundStatus::kDeviceError;
    }
  }
  Release();
  return status_;
}

void CallRunner::Answer(size_t task, DraftResult* result) {
  // The sequence may have gone between two pieces.
  const Sequence* const sequence = parts_.sequences->Find(result->sequence);
  if (sequence == nullptr || sequence->finish_reason != FinishReason::kNone) {
    result->status = sequence == nullptr ? RoundStatus::kUnknownSequence : RoundStatus::kFinished;
    return;
  }
  const TaskOutcome& outcome = parts_.scratch->outcomes[task];
  if (sequence->grammar_failed) {
    Refuse(kNoMaskMemory, result);
  } else if (outcome.status == OutcomeStatus::kNoRoom) {
    Refuse(RefusalText(Refusal::kNoRoom), result);
  } else if (outcome.status != OutcomeStatus::kOk) {
    // Nothing was confirmed. The sequence continues, and its drafter may bring another row.
    // The task's target rows are the draft tensor.
    const bool is_row = outcome.status == OutcomeStatus::kBadTargetRow;
    result->status = RoundStatus::kBadDistribution;
    result->refusal =
        RefusalOf(is_row ? OutcomeStatus::kBadDraftRow : outcome.status, outcome.fault);
    ++parts_.counters->bad_draft_rows;
  } else {
    result->children = {&samples_[task * size_t{kSamplesMax}],
                        static_cast<size_t>(outcome.num_tokens)};
  }
}

// ---- FindForced

void CallRunner::FindForced(const ForcedInput& input, size_t index, ForcedResult* result) {
  TokenId* const to = &forced_ids_[index * static_cast<size_t>(limits_.max_output())];
  *result = ForcedResult{};
  result->sequence = input.sequence;
  SPECD_CHECK(input.num_prefix >= 0 && input.num_ids_max <= limits_.max_output());
  const Sequence* sequence = parts_.sequences->Find(input.sequence);
  if (sequence == nullptr) {
    if (!parts_.sequences->MayHaveGivenOut(input.sequence)) {
      Refuse(RefusalText(Refusal::kSequence), result);
      return;
    }
    result->status = RoundStatus::kUnknownSequence;
    return;
  }
  if (const RoundStatus status = RunningStatus(*sequence); status != RoundStatus::kOk) {
    result->status = status;
    return;
  }
  if (sequence->grammar.empty() || sequence->grammar_failed) return;
  const grammar::ForcedTokenFinder* finder = parts_.grammars->forced_tokens();
  if (finder == nullptr) return;
  try {
    const std::unique_ptr<grammar::GrammarMatcher> matcher = sequence->grammar.matcher().Fork();
    for (int32_t i = 0; i < input.num_prefix; ++i) {
      if (!matcher->Accept(input.prefix[i])) return;
    }
    const std::vector<TokenId> ids = finder->Find(*matcher, static_cast<size_t>(input.num_ids_max));
    std::copy(ids.begin(), ids.end(), to);
    result->ids = {to, ids.size()};
  } catch (...) {
    // The sequence's own matcher has not moved.
    Refuse("no memory is left to find forced ids; try again later", result);
  }
}

// ---- Score

bool CallRunner::Pack(const ScoreInput& input, ScoreResult* result) {
  *result = ScoreResult{};
  SPECD_CHECK(parts_.rows->target.num_rows > 0);
  SPECD_CHECK(input.num_ids >= 0 && input.num_ids <= limits_.max_output());
  SPECD_CHECK(input.request.enabled && NumScores(input.request) >= 1 &&
              NumScores(input.request) <= static_cast<int32_t>(kScoresPerTokenMax));
  if (input.num_ids == 0) return false;
  Task& task = parts_.scratch->tasks[parts_.scratch->num_tasks];
  task = Task{};
  task.kind = TaskKind::kScore;
  task.draft.num_nodes = input.num_ids;
  task.draft.tokens = input.ids;
  task.draft.target_rows = input.rows;
  task.target_scale = ScaleFor(1.0);
  task.scores = input.request;
  return true;
}

void CallRunner::Begin(std::span<const ScoreInput> inputs, std::span<ScoreResult> results,
                       bool is_alone) {
  PackAll(inputs, results);
  Cut(parts_.rows->target, is_alone);
}

absl::Status CallRunner::End(std::span<const ScoreInput> inputs, std::span<ScoreResult> results) {
  const RoundScratch& scratch = *parts_.scratch;
  for (size_t i = 0; i < static_cast<size_t>(scratch.num_tasks); ++i) {
    const size_t index = scratch.task_results[i];
    if (status_.ok()) {
      Answer(i, inputs[index], &results[index]);
    } else {
      results[index].status = RoundStatus::kDeviceError;
    }
  }
  return status_;
}

void CallRunner::Answer(size_t task, const ScoreInput& input, ScoreResult* result) {
  const TaskOutcome& outcome = parts_.scratch->outcomes[task];
  if (outcome.status != OutcomeStatus::kOk) {
    result->status = RoundStatus::kBadDistribution;
    result->refusal = RefusalOf(outcome.status, outcome.fault);
    ++parts_.counters->bad_target_rows;
  }
  result->num_scored = outcome.num_tokens;
  result->scores_per_token = NumScores(input.request);
  result->scores =
      parts_.scratch->CompactScores(task, result->num_scored, result->scores_per_token);
}

}  // namespace specd
