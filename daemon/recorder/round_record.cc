#include "daemon/recorder/round_record.h"

#include "daemon/trace/parameter_hash.h"
#include "daemon/trace/row_hash.h"
#include "daemon/trace/task_fields.h"

namespace specd {
namespace {

template <class T>
void Assign(const T* from, int64_t count, std::vector<T>* to) {
  if (from != nullptr) to->assign(from, from + count);
}

uint64_t BytesOf(const RoundCopy& copy, TraceTensor tensor) {
  if (tensor == TraceTensor::kTarget) return RowBytes(copy.target);
  if (tensor == TraceTensor::kDraft) return RowBytes(copy.draft);
  return MaskRowBytes(copy.target.vocab_size);
}

TraceTensorInfo InfoOf(const TensorView& tensor) {
  return {.dtype = tensor.dtype,
          .rules = tensor.rules,
          .space = tensor.space,
          .num_columns = static_cast<uint32_t>(tensor.num_columns)};
}

std::vector<TracePlace> PlacesOf(const TaskCopy& copy, TraceLevel level) {
  const auto num_places = static_cast<size_t>(copy.task.draft.num_nodes) + 1;
  const bool has_edits = copy.task.places != nullptr;
  if (!has_edits && copy.grammar_states == nullptr) return {};
  std::vector<TracePlace> places(num_places);
  for (size_t i = 0; i < num_places; ++i) {
    TracePlace& place = places[i];
    if (copy.grammar_states != nullptr) place.grammar_state = copy.grammar_states[i];
    if (copy.grammar_masks != nullptr) place.grammar_mask = copy.grammar_masks[i];
    if (!has_edits) continue;
    const PlaceEdits& edits = copy.task.places[i];
    place.mask_row = edits.mask_row;
    place.below_min_tokens = edits.below_min_tokens;
    place.forced = edits.forced;
    place.in_thought = edits.in_thought;
    if (level == TraceLevel::kRows) Assign(edits.overrides, edits.num_overrides, &place.overrides);
  }
  return places;
}

void FillTask(const TaskCopy& copy, TraceLevel level, const TensorView& target, TraceTask* out) {
  const Task& task = copy.task;
  const Draft& draft = task.draft;
  const int64_t nodes = draft.num_nodes;
  out->answer = copy.answer;
  VisitDraftArrays([&](const char*, auto array, auto list, int num_more) {
    Assign(draft.*array, nodes + num_more, &(out->*list));
  });
  VisitTaskValues([&](const char*, auto value, auto recorded) { out->*recorded = task.*value; });
  out->lossy.rates = nullptr;
  out->lossy.num_rates = 0;
  Assign(task.lossy.rates, task.lossy.num_rates, &out->rates);
  out->scores = task.scores;
  out->scores.chosen = nullptr;
  Assign(task.scores.chosen, task.scores.num_chosen, &out->chosen);
  Assign(task.coins, task.num_coins, &out->coins);
  out->penalties = task.edits.penalties;
  out->num_edits = static_cast<uint32_t>(task.edits.num_edits);
  if (level == TraceLevel::kRows) {
    Assign(task.edits.edits, task.edits.num_edits, &out->edits);
    Assign(task.edits.allowed,
           static_cast<int64_t>(MaskRowBytes(target.vocab_size) / sizeof(uint32_t)), &out->allowed);
  }
  out->places = PlacesOf(copy, level);
  const bool has_lists = level == TraceLevel::kRows;
  out->edits_hash = has_lists ? RecordedEditsHash(*out) : copy.edits_hash;
  out->overrides_hash =
      has_lists ? RecordedOverridesHash(*out, target.vocab_size) : copy.overrides_hash;
  out->parameters_hash = ParametersHash(*out);
  out->outcome = copy.outcome;
  Assign(copy.tokens, copy.outcome.num_tokens, &out->confirmed);
  Assign(copy.path, copy.outcome.num_accepted, &out->path);
  Assign(copy.scores, int64_t{NumScores(task.scores)} * copy.outcome.num_tokens,
         &out->token_scores);
  // A backend that keeps no records leaves every decision as it was.
  for (int64_t i = 0; copy.decisions != nullptr && i <= nodes; ++i) {
    if (!copy.decisions[i].judged) continue;
    Assign(copy.decisions, nodes + 1, &out->decisions);
    break;
  }
}

}  // namespace

void MakeTraceRound(const RoundCopy& copy, TraceRound* record) {
  *record = TraceRound{};
  static_cast<TraceRoundFacts&>(*record) = copy;
  record->target = InfoOf(copy.target);
  record->draft = InfoOf(copy.draft);
  record->answers.assign(copy.answers.begin(), copy.answers.end());
  record->tasks.resize(copy.tasks.size());
  for (size_t i = 0; i < copy.tasks.size(); ++i) {
    FillTask(copy.tasks[i], copy.level, copy.target, &record->tasks[i]);
  }
  record->rows.reserve(copy.rows.size());
  for (const RowCopy& row : copy.rows) {
    const uint64_t hash =
        row.hash != 0 ? row.hash : RowHash({row.bytes, BytesOf(copy, row.tensor)});
    record->rows.push_back({.tensor = row.tensor, .index = row.index, .hash = hash});
  }
}

}  // namespace specd
