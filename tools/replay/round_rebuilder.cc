#include "tools/replay/round_rebuilder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/trace/task_fields.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/task_rules.h"

namespace specd::replay {
namespace {

constexpr int32_t kStride = kNodesMax + 1;
constexpr size_t kTasksMax = 4096;  // sequences of a round

absl::Status NotRecorded(TraceTensor tensor) {
  return absl::NotFoundError(
      fmt::format("a {} row that the round read was not recorded", NameOf(tensor)));
}

// The places whose rows were recorded: those up to the end of the draft, and for `block` and in a
// tree all (daemon/recorder/round_copy.h).
size_t NumReadPlaces(const TraceTask& task, int32_t vocab_size) {
  if (DraftTree::IsTree(task)) return task.tokens.size() + 1;
  const uint32_t drawn = NumDrawn(task, vocab_size);
  if (task.method == VerifyMethod::kBlock) return drawn + 1;
  return std::min(drawn, static_cast<uint32_t>(task.outcome.num_accepted)) + 1;
}

}  // namespace

void RoundRebuilder::Rebuild(const TraceRound& round, const RowFileReader* rows) {
  rows_.Begin(round, vocab_size_, rows);
  tasks_.clear();
  batch_tasks_.clear();
  why_not_.assign(round.tasks.size(), absl::OkStatus());
  damage_ = absl::OkStatus();
  arrays_.clear();
  for (size_t i = 0; i < round.tasks.size(); ++i) {
    Arrays arrays;
    why_not_[i] = Add(round, round.tasks[i], &arrays);
    if (absl::IsDataLoss(why_not_[i])) damage_.Update(why_not_[i]);
    if (!why_not_[i].ok()) continue;
    tasks_.push_back(static_cast<uint32_t>(i));
    arrays_.push_back(std::move(arrays));
  }
  if (!tasks_.empty()) MakeBatch(round);
}

absl::Status RoundRebuilder::Add(const TraceRound& round, const TraceTask& task, Arrays* arrays) {
  const size_t num_places = std::max(task.target_rows.size(), task.target_argmax.size());
  if (task.drafts_by_slot && task.tokens.size() + 1 != num_places) {
    return absl::NotFoundError("the draft tokens lay on the device and were not recorded");
  }
  if (task.parents_by_slot) {
    return absl::NotFoundError("the parents lay on the device and were not recorded");
  }
  if (absl::Status status = CheckTask(round, task, vocab_size_); !status.ok()) return status;
  if (tasks_.size() == kTasksMax) return absl::InvalidArgumentError("the round has too many tasks");
  if (round.status != RoundStatus::kOk) {
    return absl::NotFoundError("the round was called off, so its task has no outcome");
  }
  if (IsUndecided(task.outcome.status)) {
    return absl::NotFoundError(
        task.outcome.status == OutcomeStatus::kNoRoom
            ? "the backend had no room for the task's lists"
            : "the parents that lay on the device were no tree that a round may verify");
  }
  if (task.continues) {
    return absl::NotFoundError("the task continues rounds that were still running");
  }
  if (task.edits.size() != task.num_edits) {
    return absl::NotFoundError("the token edits of the sequence were not recorded");
  }
  if (absl::Status status = AddRows(task, arrays); !status.ok()) return status;
  return AddPlaces(task, arrays);
}

absl::Status RoundRebuilder::TakeRow(TraceTensor tensor, uint32_t index, bool is_read,
                                     uint32_t* row, bool* is_whole) {
  const auto loaded = rows_.Load(tensor, index);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->has_value() && is_read) return NotRecorded(tensor);
  if (!loaded->has_value()) *is_whole = false;
  *row = loaded->has_value() ? **loaded : rows_.Placeholder(tensor);
  return absl::OkStatus();
}

absl::Status RoundRebuilder::AddRows(const TraceTask& task, Arrays* arrays) {
  if (task.target_rows.empty() && task.target_argmax.empty()) {
    return absl::NotFoundError("the task names no target rows");
  }
  if (!task.target_argmax.empty() && task.method != VerifyMethod::kGreedy) {
    return absl::InvalidArgumentError("\"target_argmax\" is for greedy tasks only");
  }
  const size_t num_read = NumReadPlaces(task, vocab_size_);
  const DraftTree tree(task, vocab_size_);
  arrays->target_rows.resize(task.target_rows.size());
  for (size_t i = 0; i < task.target_rows.size(); ++i) {
    absl::Status status = TakeRow(TraceTensor::kTarget, task.target_rows[i], i < num_read,
                                  &arrays->target_rows[i], &arrays->has_target_rows);
    if (!status.ok()) return status;
  }
  // Methods that look at the draft token alone read no draft row, and `rerun` may ask for it.
  const bool reads_drafts = ReadsDraftRows(task.method);
  arrays->draft_rows.assign(task.kinds.size(), 0);
  arrays->draft_row_is_there.assign(task.kinds.size(), false);
  for (size_t i = 0; i < task.kinds.size(); ++i) {
    if (task.kinds[i] == DraftKind::kOneHot) continue;
    const bool is_read = reads_drafts && i < num_read && tree.IsInside(static_cast<int32_t>(i));
    if (i >= task.draft_rows.size()) {
      if (is_read) return absl::InvalidArgumentError("a sampled token has no draft row");
      arrays->has_draft_rows = false;
      arrays->draft_rows[i] = rows_.Placeholder(TraceTensor::kDraft);
      continue;
    }
    bool is_there = true;
    absl::Status status = TakeRow(TraceTensor::kDraft, task.draft_rows[i], is_read,
                                  &arrays->draft_rows[i], &is_there);
    if (!status.ok()) return status;
    arrays->draft_row_is_there[i] = is_there;
    arrays->has_draft_rows = arrays->has_draft_rows && is_there;
  }
  return absl::OkStatus();
}

absl::Status RoundRebuilder::AddPlaces(const TraceTask& task, Arrays* arrays) {
  const size_t num_read = NumReadPlaces(task, vocab_size_);
  for (size_t i = 0; i < task.places.size(); ++i) {
    const TracePlace& place = task.places[i];
    PlaceEdits edits;
    edits.overrides = place.overrides.data();
    edits.num_overrides = static_cast<int32_t>(place.overrides.size());
    edits.below_min_tokens = place.below_min_tokens;
    edits.forced = place.forced;
    edits.in_thought = place.in_thought;
    if (place.mask_row >= 0 && place.grammar_mask >= 0) {
      return absl::InvalidArgumentError("a place has two masks");
    }
    for (const TraceTensor tensor : {TraceTensor::kMask, TraceTensor::kGrammarMask}) {
      const bool is_grammar = tensor == TraceTensor::kGrammarMask;
      const int32_t index = is_grammar ? place.grammar_mask : place.mask_row;
      if (index < 0) continue;
      uint32_t row = 0;
      absl::Status status = TakeRow(tensor, static_cast<uint32_t>(index), i < num_read, &row,
                                    &arrays->has_target_rows);
      if (!status.ok()) return status;
      edits.mask_row = static_cast<int32_t>(row);  // MakeBatch makes it an address, if of a grammar
    }
    arrays->places.push_back(edits);
  }
  return absl::OkStatus();
}

void RoundRebuilder::MakeTask(const TraceTask& record, uint32_t slot, const Arrays& arrays) {
  Task task;
  const auto optional = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
  Draft& draft = task.draft;
  draft.num_nodes = static_cast<int32_t>(record.tokens.size());
  VisitDraftArrays(
      [&](const char*, auto array, auto list, int) { draft.*array = optional(record.*list); });
  if (record.drafts_by_slot) draft.tokens = nullptr;
  draft.target_rows = optional(arrays.target_rows);
  draft.draft_rows = optional(arrays.draft_rows);
  VisitTaskValues([&](const char*, auto value, auto recorded) { task.*value = record.*recorded; });
  task.slot = slot;
  task.edits = {.edits = record.edits.data(),
                .num_edits = static_cast<int32_t>(record.edits.size()),
                .allowed = optional(record.allowed),
                .penalties = record.penalties};
  task.places = optional(arrays.places);
  task.lossy.rates = optional(record.rates);
  task.lossy.num_rates = static_cast<int32_t>(record.rates.size());
  task.scores = record.scores;
  task.scores.chosen = record.chosen.data();
  task.scores.num_chosen = static_cast<int32_t>(record.chosen.size());
  task.coins = record.coins.data();
  task.num_coins = static_cast<int32_t>(record.coins.size());
  std::copy(record.tokens.begin(), record.tokens.end(),
            drafts_by_slot_.begin() + int64_t{slot} * kStride);
  batch_tasks_.push_back(task);
}

void RoundRebuilder::MakeBatch(const TraceRound& round) {
  const size_t count = tasks_.size();
  drafts_by_slot_.assign(count * kStride, kNoToken);
  int32_t scores_stride = 0;
  for (size_t i = 0; i < count; ++i) {
    const TraceTask& record = round.tasks[tasks_[i]];
    for (size_t place = 0; place < arrays_[i].places.size(); ++place) {
      if (record.places[place].grammar_mask < 0) continue;
      PlaceEdits& edits = arrays_[i].places[place];
      edits.grammar_mask = rows_.GrammarMask(static_cast<uint32_t>(edits.mask_row));
      edits.mask_row = -1;
    }
    MakeTask(record, static_cast<uint32_t>(i), arrays_[i]);
    scores_stride = std::max(scores_stride, NumScores(batch_tasks_.back().scores));
  }
  outcomes_.assign(count, {});
  tokens_.assign(count * kStride, kNoToken);
  path_.assign(count * kStride, -1);
  scores_.assign(count * kStride * static_cast<size_t>(scores_stride), {});
  decisions_.assign(count * kStride, {});
  batch_ = {};
  batch_.target = rows_.Target();
  batch_.draft = rows_.Draft();
  batch_.mask = rows_.Masks();
  batch_.tasks = batch_tasks_.data();
  batch_.num_tasks = static_cast<int32_t>(count);
  batch_.outcomes = outcomes_.data();
  batch_.tokens = tokens_.data();
  batch_.path = path_.data();
  batch_.tokens_stride = kStride;
  batch_.scores = scores_.data();
  batch_.scores_stride = scores_stride;
  batch_.draft_tokens = {.ids = drafts_by_slot_.data(), .row_stride = kStride};
  batch_.decisions = decisions_.data();
  batch_.decisions_stride = kStride;
}

std::optional<size_t> RoundRebuilder::InBatch(size_t trace_task) const {
  const auto found = std::find(tasks_.begin(), tasks_.end(), trace_task);
  if (found == tasks_.end()) return std::nullopt;
  return static_cast<size_t>(found - tasks_.begin());
}

void RoundRebuilder::ClearAnswers() {
  std::fill(outcomes_.begin(), outcomes_.end(), TaskOutcome());
  std::fill(tokens_.begin(), tokens_.end(), kNoToken);
  std::fill(path_.begin(), path_.end(), -1);
  std::fill(scores_.begin(), scores_.end(), TokenScore());
  std::fill(decisions_.begin(), decisions_.end(), PlaceDecision());
}

std::span<const TokenId> RoundRebuilder::tokens(size_t i) const {
  return {tokens_.data() + i * kStride, static_cast<size_t>(outcomes_[i].num_tokens)};
}

std::span<const int32_t> RoundRebuilder::path(size_t i) const {
  return {path_.data() + i * kStride, static_cast<size_t>(outcomes_[i].num_accepted)};
}

std::span<const TokenScore> RoundRebuilder::scores(size_t i) const {
  // The scores of one token lie together, and a shorter request leaves the rest of its room.
  return {scores_.data() + i * kStride * static_cast<size_t>(batch_.scores_stride),
          static_cast<size_t>(outcomes_[i].num_tokens * batch_.scores_stride)};
}

std::span<const PlaceDecision> RoundRebuilder::decisions(size_t i) const {
  return {decisions_.data() + i * kStride,
          static_cast<size_t>(batch_tasks_[i].draft.num_nodes) + 1};
}

}  // namespace specd::replay
