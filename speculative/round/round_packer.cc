#include "speculative/round/round_packer.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "speculative/grammar/masks/mask_builder.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

// The number of nodes that a processor has to look at. In a chain these are the nodes before the
// first kNoToken, and up to the first other id outside the vocabulary, which ends the draft and is
// counted. In a tree such an id ends its own branch alone, so all nodes count, and so they do if
// only the device knows the tokens.
int32_t NumNodesOf(const Draft& draft, int32_t vocab_size) {
  if (draft.tokens == nullptr || draft.parents != nullptr) return draft.num_nodes;
  for (int32_t i = 0; i < draft.num_nodes; ++i) {
    if (IsInVocabulary(draft.tokens[i], vocab_size)) continue;
    return draft.tokens[i] == kNoToken ? i : i + 1;
  }
  return draft.num_nodes;
}

// The slices that the masks of one sequence can take.
constexpr uint64_t kWarmSlicesMax =
    (size_t{kNodesMax} + 1) * (grammar::MaskBuilder::kUnitsMax / MaskFiller::kSlice.units);

// Rows that are all -1 constrain nothing and count as none.
bool IsMasked(const SequenceInput& input) {
  if (input.mask_rows == nullptr) return false;
  const int32_t* end = input.mask_rows + input.draft.num_nodes + 1;
  return std::any_of(input.mask_rows, end, [](int32_t row) { return row != -1; });
}

}  // namespace

Sequence* RoundPacker::FindRunning(SequenceHandle handle, SequenceResult* result) const {
  *result = SequenceResult{};
  result->sequence = handle;
  Sequence* sequence = sequences_.Find(handle);
  if (sequence == nullptr) {
    const bool is_ours = sequences_.MayHaveGivenOut(handle);
    result->status = is_ours ? RoundStatus::kUnknownSequence : RoundStatus::kInvalid;
    if (!is_ours) result->refusal = Refusal::kSequence;
    return nullptr;
  }
  result->finish_reason = sequence->finish_reason;
  result->total_kept = sequence->kept_tokens;
  result->stop_token = sequence->stop_token;
  result->cumulative_logprob = sequence->logprob_sum.value();
  result->status = RunningStatus(*sequence);
  return result->status == RoundStatus::kOk ? sequence : nullptr;
}

// Rounds inside a CUDA graph run when no host looks at them, and only the device knows the tokens
// of a sequence whose slot is held.
bool RoundPacker::NeedsHostDraft(const SequenceInput& input, const RoundScratch& scratch) const {
  if (!input.drafts_by_slot || input.discard || input.refusal != Refusal::kNone) return false;
  const Sequence* sequence = sequences_.Find(input.sequence);
  const bool has_tree = input.parents_by_slot && rows_.draft_tree.space() == MemorySpace::kHost;
  return sequence != nullptr && sequence->finish_reason == FinishReason::kNone &&
         (sequence->rules.has_processors() || !sequence->grammar.empty() || has_tree) &&
         !scratch.is_staged && !sequences_.IsHeld(SlotOf(input.sequence));
}

absl::Status RoundPacker::ReadDrafts(std::span<const SequenceInput> inputs, RoundScratch* scratch) {
  scratch->draft_reads.clear();
  scratch->host_trees.Clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!NeedsHostDraft(inputs[i], *scratch)) continue;
    CheckNumbers(inputs[i]);
    if (inputs[i].parents_by_slot) scratch->host_trees.Ask(rows_.draft_tree, i, inputs[i]);
    scratch->draft_reads.push_back({.slot = SlotOf(inputs[i].sequence),
                                    .num_ids = inputs[i].draft.num_nodes,
                                    .to = scratch->HostDraftOf(i)});
  }
  if (scratch->draft_reads.empty()) return absl::OkStatus();
  const absl::Status status = backend_.ReadDraftTokens(rows_.draft_tokens, scratch->draft_reads);
  return status.ok() ? scratch->host_trees.Read(rows_.draft_tree, &backend_) : status;
}

absl::Status RoundPacker::Pack(std::span<const SequenceInput> inputs, RoundScratch* scratch,
                               std::span<SequenceResult> results) {
  SPECD_CHECK(inputs.size() <= scratch->tasks.size());
  SPECD_CHECK(inputs.size() == results.size());
  const uint64_t stamp = sequences_.NextStamp();
  scratch->num_tasks = 0;
  scratch->num_discarded = 0;
  scratch->mask_jobs.clear();
  scratch->num_filled = 0;
  if (absl::Status status = ReadDrafts(inputs, scratch); !status.ok()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (FindRunning(inputs[i].sequence, &results[i]) == nullptr) continue;
      results[i].status = RoundStatus::kDeviceError;
    }
    return status;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t task_index = scratch->num_tasks;
    SequenceInput input = inputs[i];
    if (NeedsHostDraft(input, *scratch)) {
      input.drafts_by_slot = false;
      input.draft.tokens = scratch->HostDraftOf(i);
      if (input.parents_by_slot) {
        scratch->host_trees.Give(rows_.draft_tree, i, scratch->HostDraftOf(i), &input);
      }
    }
    if (PackOne(input, stamp, scratch, &results[i])) {
      scratch->task_results[task_index] = static_cast<uint32_t>(i);
    }
  }
  return absl::OkStatus();
}

bool RoundPacker::FillMasks(int32_t end_task, RoundScratch* scratch) {
  const std::span<MaskFiller::Job> jobs = scratch->mask_jobs;
  if (scratch->num_filled == jobs.size()) return true;
  // Jobs are in the order of their tasks.
  const Task* const end = scratch->tasks.data() + end_task;
  size_t num_wanted = scratch->num_filled;
  while (num_wanted < jobs.size() && jobs[num_wanted].draft < &end->draft) ++num_wanted;
  scratch->num_filled +=
      masks_.Fill(jobs.subspan(scratch->num_filled, num_wanted - scratch->num_filled));
  return scratch->num_filled == num_wanted;
}

Sequence* RoundPacker::FindWarmable(const SequenceInput& input, uint64_t stamp) const {
  Sequence* sequence = sequences_.Find(input.sequence);
  if (sequence == nullptr || sequence->finish_reason != FinishReason::kNone ||
      sequence->grammar.empty() || sequence->grammar_failed || input.discard ||
      FindRefusal(input, *sequence, stamp, false) != Refusal::kNone) {
    return nullptr;
  }
  return sequence;
}

bool RoundPacker::ReadDraftsEarly(std::span<const SequenceInput> inputs, RoundScratch* scratch) {
  const uint64_t stamp = sequences_.NextStamp();
  scratch->draft_reads.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].drafts_by_slot || inputs[i].parents_by_slot ||
        FindWarmable(inputs[i], stamp) == nullptr) {
      continue;
    }
    scratch->draft_reads.push_back({.slot = SlotOf(inputs[i].sequence),
                                    .num_ids = inputs[i].draft.num_nodes,
                                    .to = scratch->HostDraftOf(i)});
  }
  if (scratch->draft_reads.empty()) return true;
  // The round meets the same error and answers it.
  return backend_.ReadDraftTokensEarly(rows_.draft_tokens, scratch->draft_reads).ok();
}

bool RoundPacker::WarmMasks(std::span<const SequenceInput> inputs, RoundScratch* scratch,
                            MaskWarmth* warmth) {
  SPECD_CHECK(inputs.size() <= scratch->tasks.size());
  if (warmth->drafts == MaskWarmth::Drafts::kMarked) {
    warmth->drafts =
        ReadDraftsEarly(inputs, scratch) ? MaskWarmth::Drafts::kCopied : MaskWarmth::Drafts::kLost;
    warmth->num_warm = 0;
  }
  const uint64_t stamp = sequences_.NextStamp();
  scratch->num_tasks = 0;
  scratch->mask_jobs.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SequenceInput& input = inputs[i];
    Sequence* const sequence = FindWarmable(input, stamp);
    if (sequence == nullptr) continue;
    sequence->last_round = stamp;  // a second record of it makes no second job
    Draft& draft = scratch->tasks[i].draft;
    draft = input.draft;
    if (!input.drafts_by_slot) {
      draft.num_nodes = NumNodesOf(draft, limits_.vocab_size);
    } else if (warmth->drafts == MaskWarmth::Drafts::kCopied && !input.parents_by_slot) {
      draft.tokens = scratch->HostDraftOf(i);
      draft.num_nodes = NumNodesOf(draft, limits_.vocab_size);
    } else {
      draft.num_nodes = 0;
    }
    std::fill_n(scratch->PlacesOf(i), draft.num_nodes + 1, PlaceEdits{});
    scratch->mask_jobs.push_back({sequence, &draft, scratch->PlacesOf(i)});
  }
  const std::span<MaskFiller::Job> jobs = scratch->mask_jobs;
  if (warmth->num_warm < jobs.size()) {
    const std::span<MaskFiller::Job> left = jobs.subspan(warmth->num_warm);
    const size_t num_filled = masks_.Fill(left);
    // A sequence that gets nowhere is left to its round, which keeps its place.
    warmth->num_slices = num_filled > 0 ? 0 : warmth->num_slices + 1;
    warmth->num_warm += warmth->num_slices > kWarmSlicesMax ? 1 : num_filled;
    // The cache has the masks. This round may never run, and its sequences may wait for long.
    for (const MaskFiller::Job& job : left) job.sequence->grammar.DropRows();
  }
  return warmth->num_warm < jobs.size();
}

bool RoundPacker::PackOne(const SequenceInput& input, uint64_t stamp, RoundScratch* scratch,
                          SequenceResult* result) {
  Sequence* sequence = FindRunning(input.sequence, result);
  if (sequence == nullptr) {
    if (result->status == RoundStatus::kInvalid) ++counters_.invalid_records;
    return false;
  }
  result->refusal = FindRefusal(input, *sequence, stamp, scratch->is_staged);
  if (result->refusal != Refusal::kNone) {
    result->status = RoundStatus::kInvalid;
    ++counters_.invalid_records;
    return false;
  }
  sequence->last_round = stamp;
  if (input.discard) {
    ++scratch->num_discarded;
    return false;
  }
  const size_t task_index = scratch->num_tasks++;
  scratch->sequences[task_index] = sequence;
  Task& task = scratch->tasks[task_index];
  task = Task{};
  task.draft = input.draft;
  task.draft.num_nodes = NumNodesOf(input.draft, limits_.vocab_size);
  task.kind = TaskKind::kVerify;
  task.method = result->method = ResolveMethod(
      sequence->method, {.any_drawn = AnyDrawn(input.draft),
                         .is_tree = input.draft.parents != nullptr || input.parents_by_slot});
  task.target_scale = sequence->target_scale;
  task.draft_scale = sequence->draft_scale;
  task.seed = sequence->seed;
  task.coins = sequence->coins.data();
  task.num_coins = static_cast<int32_t>(sequence->coins.size());
  task.first_position = sequence->kept_tokens;
  task.round_base = sequence->kept_tokens;
  task.slot = SlotOf(sequence->handle);
  task.drafts_by_slot = input.drafts_by_slot;
  task.parents_by_slot = input.parents_by_slot;
  task.continues = sequences_.IsHeld(task.slot);
  task.min_tokens = static_cast<uint32_t>(sequence->min_tokens);
  task.target_filters = sequence->target_filters;
  task.draft_filters = sequence->draft_filters;
  task.draft_edits = sequence->draft_edits;
  task.lossy = sequence->lossy;
  task.lossy.rates = sequence->rates.data();
  task.rng = sequence->rng;
  task.rng_offset = sequence->rng_offset;
  task.scores = sequence->scores;
  task.scores.chosen = sequence->logprob_token_ids.data();
  PackPlaces(input, sequence, &task, scratch->PlacesOf(task_index), &scratch->mask_jobs);
  return true;
}

// ipc checked these numbers when it read them (ipc/segment/draft_record.h).
void RoundPacker::CheckNumbers(const SequenceInput& input) const {
  const Draft& draft = input.draft;
  SPECD_CHECK(draft.num_nodes >= 0 && draft.num_nodes <= limits_.max_draft);
  SPECD_CHECK((draft.draft_weights == nullptr) == (draft.draft_masses == nullptr));
  SPECD_CHECK(!input.drafts_by_slot || rows_.draft_tokens.ids != nullptr);
  SPECD_CHECK(!input.parents_by_slot || (input.drafts_by_slot && rows_.draft_tree.is_bound()));
  SPECD_CHECK(draft.target_argmax != nullptr ||
              (draft.target_rows != nullptr && rows_.target.num_rows > 0));
  SPECD_CHECK(!AnyDrawn(draft) || (draft.draft_rows != nullptr && rows_.draft.num_rows > 0));
  SPECD_CHECK(!IsMasked(input) ||
              std::all_of(input.mask_rows, input.mask_rows + draft.num_nodes + 1,
                          [this](int32_t row) { return rows_.IsMaskRow(row); }));
}

Refusal RoundPacker::FindRefusal(const SequenceInput& input, const Sequence& sequence,
                                 uint64_t stamp, bool is_staged) const {
  if (input.refusal != Refusal::kNone) return input.refusal;
  // A second record of the same sequence has no defined place in the output.
  if (sequence.last_round == stamp) return Refusal::kTwice;
  if (input.discard) return Refusal::kNone;
  CheckNumbers(input);
  if (input.draft.parents != nullptr || input.parents_by_slot) {
    const VerifyMethod method = sequence.method;
    if (method == VerifyMethod::kToken || method == VerifyMethod::kBlock) return Refusal::kTree;
  }
  const bool has_grammar = !sequence.grammar.empty();
  if (IsMasked(input) && has_grammar) return Refusal::kTwoMasks;
  if (is_staged && has_grammar) return Refusal::kStagedGrammar;
  if ((IsMasked(input) || has_grammar) && rows_.target.rules.kind == RowKind::kFinalProbabilities) {
    return Refusal::kFinalMask;
  }
  // Processors and grammars look at tokens on the host, which does not know tokens of staged
  // rounds.
  if ((sequence.rules.has_processors() || has_grammar) &&
      ((is_staged && input.drafts_by_slot) || sequences_.IsHeld(SlotOf(sequence.handle)))) {
    return Refusal::kHostTokens;
  }
  return input.draft.target_argmax == nullptr ? Refusal::kNone : FindArgmaxRefusal(input, sequence);
}

Refusal RoundPacker::FindArgmaxRefusal(const SequenceInput& input, const Sequence& sequence) const {
  if (sequence.method != VerifyMethod::kGreedy) return Refusal::kArgmaxSampled;
  if (!sequence.rules.empty() || IsMasked(input) || !sequence.grammar.empty())
    return Refusal::kArgmaxEdited;
  return sequence.scores.enabled ? Refusal::kArgmaxScored : Refusal::kNone;
}

void RoundPacker::PackPlaces(const SequenceInput& input, Sequence* sequence, Task* task,
                             PlaceEdits* places, std::vector<MaskFiller::Job>* mask_jobs) {
  task->edits = sequence->rules.sequence_edits();
  const bool is_masked = IsMasked(input);
  const int32_t num_places = task->draft.num_nodes + 1;
  // The device adds the edits that depend on tokens which only the device knows.
  const bool is_resolved_here = !task->drafts_by_slot && !task->continues;
  if (is_resolved_here && sequence->rules.NeedsPlaces(sequence->kept_tokens)) {
    sequence->rules.BeginRound();
    sequence->rules.Build(task->draft, 0, sequence->kept_tokens, places);
  } else if (is_masked || !sequence->grammar.empty()) {
    std::fill_n(places, num_places, PlaceEdits{});
  } else {
    return;
  }
  task->places = places;
  if (!sequence->grammar.empty() && !sequence->grammar_failed) {
    mask_jobs->push_back({sequence, &task->draft, places});
  }
  if (!is_masked) return;
  for (int32_t i = 0; i < num_places; ++i) places[i].mask_row = input.mask_rows[i];
}

RoundBatch RoundPacker::BatchOf(const TensorView& target, RoundScratch* scratch) const {
  scratch->scores_stride = 0;
  for (int32_t i = 0; i < scratch->num_tasks; ++i) {
    scratch->scores_stride = std::max(scratch->scores_stride, NumScores(scratch->tasks[i].scores));
  }
  return {.target = target,
          .draft = rows_.draft,
          .tasks = scratch->tasks.data(),
          .num_tasks = scratch->num_tasks,
          .outcomes = scratch->outcomes.data(),
          .tokens = scratch->tokens.data(),
          .path = scratch->path.data(),
          .tokens_stride = scratch->max_output,
          .mask = rows_.mask,
          .scores = scratch->scores.data(),
          .scores_stride = scratch->scores_stride,
          .slot_outputs = rows_.slot_outputs().data(),
          .num_slot_outputs = static_cast<int32_t>(rows_.slot_outputs().size()),
          .draft_tokens = rows_.draft_tokens,
          .draft_tree = rows_.draft_tree};
}

}  // namespace specd
