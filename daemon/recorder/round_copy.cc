#include "daemon/recorder/round_copy.h"

#include <cstring>

#include "daemon/trace/parameter_hash.h"
#include "daemon/trace/task_fields.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

// The places as the processor knew them; null if it kept no record.
const PlaceDecision* RecordOf(const RoundBatch& batch, uint32_t task) {
  if (batch.decisions == nullptr) return nullptr;
  const PlaceDecision* const places = batch.decisions + int64_t{task} * batch.decisions_stride;
  return places->position == kNoPosition ? nullptr : places;
}

// The edits that a record below level `rows` has no lists of. `out` has the draft already.
void HashEdits(const Task& task, int32_t vocab_size, TaskCopy* out) {
  const SequenceEdits& edits = task.edits;
  const size_t num_words = edits.allowed == nullptr ? 0 : MaskRowBytes(vocab_size) / 4;
  out->edits_hash =
      EditsHash({edits.edits, static_cast<size_t>(edits.num_edits)}, {edits.allowed, num_words});
  if (task.places == nullptr) return;
  const Draft& draft = out->task.draft;
  OverridesHash overrides;
  for (int32_t i = 0; i <= draft.num_nodes; ++i) {
    const PlaceEdits& place = task.places[i];
    overrides.Add(static_cast<size_t>(i),
                  {place.overrides, static_cast<size_t>(place.num_overrides)});
    const bool has_token = draft.tokens != nullptr && i < draft.num_nodes;
    if (has_token && !IsInVocabulary(draft.tokens[i], vocab_size)) break;
  }
  out->overrides_hash = overrides.value();
}

}  // namespace

uint64_t RoundCopier::Measure(const RanRound& round, const Selection& selection) {
  rows_.List(round, selection.level, selection.tasks, selection.all_places);
  CopyArena arena(nullptr);
  Walk(round, selection, &arena);
  measured_ = arena.used();
  return measured_;
}

RoundCopy* RoundCopier::Copy(const RanRound& round, const Selection& selection, std::byte* memory) {
  CopyArena arena(memory);
  RoundCopy* const copy = Walk(round, selection, &arena);
  SPECD_CHECK(arena.used() <= measured_);
  return copy;
}

RoundCopy* RoundCopier::Walk(const RanRound& round, const Selection& selection, CopyArena* arena) {
  RoundCopy* const copy = arena->Take<RoundCopy>(1);
  TaskCopy* const tasks = arena->Take<TaskCopy>(selection.tasks.size());
  for (size_t i = 0; i < selection.tasks.size(); ++i) {
    TaskCopy task;
    CopyTask(round, selection, selection.tasks[i], arena, &task);
    if (!arena->counts_only()) tasks[i] = task;
  }
  RowCopy* const rows = arena->Take<RowCopy>(rows_.size());
  if (!rows_.Copy(round, selection.level, arena, rows)) return nullptr;
  TraceAnswer* const answers = arena->Take<TraceAnswer>(selection.max_answers);
  if (arena->counts_only()) return nullptr;
  *copy = RoundCopy{};
  copy->level = selection.level;
  copy->status = round.status;
  copy->has_run = true;
  copy->target = round.batch.target;
  copy->target.data = nullptr;
  copy->draft = round.batch.draft;
  copy->draft.data = nullptr;
  copy->draft.columns = nullptr;  // num_columns alone says that the rows were narrow
  copy->tasks = {tasks, selection.tasks.size()};
  copy->rows = {rows, rows_.size()};
  copy->answers = {answers, size_t{0}};
  return copy;
}

void RoundCopier::CopyTask(const RanRound& round, const Selection& selection, uint32_t index,
                           CopyArena* arena, TaskCopy* out) const {
  const RoundBatch& batch = round.batch;
  out->task = batch.tasks[index];
  Task& task = out->task;
  Draft& draft = task.draft;
  const int64_t nodes = draft.num_nodes;

  const PlaceDecision* const record = RecordOf(batch, index);
  VisitDraftArrays([&](const char*, auto array, auto, int num_more) {
    draft.*array = arena->Copy(draft.*array, nodes + num_more);
  });
  if (draft.tokens == nullptr && record != nullptr) {
    // The memory of the slot may hold other drafts by now.
    TokenId* const judged = arena->Take<TokenId>(static_cast<size_t>(nodes));
    for (int64_t i = 0; judged != nullptr && i < nodes; ++i) judged[i] = record[i].node;
    draft.tokens = judged;
  }
  if (task.parents_by_slot && record != nullptr) {
    CopyTree(record, batch.tasks[index].draft.draft_rows != nullptr, arena, &task);
  } else if (task.parents_by_slot) {
    draft.draft_rows = nullptr;  // they are those of places, which are not known
  }
  if (task.continues && record != nullptr) {
    task.continues = false;
    task.first_position = task.round_base = record->position;
  }
  // Pointers into sequences are valid in intact rounds only.
  if (!round.is_intact) {
    task.scores.chosen = nullptr;
    task.scores.num_chosen = 0;
    task.coins = nullptr;
    task.num_coins = 0;
    task.lossy.num_rates = 0;
  }
  task.lossy.rates = arena->Copy(task.lossy.rates, task.lossy.num_rates);
  task.scores.chosen = arena->Copy(task.scores.chosen, task.scores.num_chosen);
  task.coins = arena->Copy(task.coins, task.num_coins);

  SequenceEdits& edits = task.edits;
  if (!round.is_intact) edits.edits = nullptr, edits.allowed = nullptr;
  const bool has_lists = selection.level == TraceLevel::kRows;
  if (round.is_intact && !has_lists && !arena->counts_only()) {
    HashEdits(batch.tasks[index], batch.target.vocab_size, out);
  }
  if (has_lists) {
    edits.edits = arena->Copy(edits.edits, edits.num_edits);
    edits.allowed =
        arena->Copy(edits.allowed,
                    static_cast<int64_t>(MaskRowBytes(batch.target.vocab_size) / sizeof(uint32_t)));
  } else {
    edits.edits = nullptr;
    edits.allowed = nullptr;
  }
  CopyPlaces(round, selection.level, index, arena, out);
  CopyAnswer(round, index, arena, out);
}

// An arena that only counts gives no rows, so it is told whether there are some.
void RoundCopier::CopyTree(const PlaceDecision* record, bool has_draft_rows, CopyArena* arena,
                           Task* task) {
  Draft& draft = task->draft;
  const size_t nodes = draft.num_nodes;
  auto* const parents = arena->Take<int32_t>(nodes);
  auto* const draft_rows = arena->Take<uint32_t>(has_draft_rows ? nodes : 0);
  for (size_t i = 0; parents != nullptr && i < nodes; ++i) {
    // A node follows an earlier one. Backends from outside write the record too.
    const int32_t parent = record[i].parent;
    parents[i] = parent >= kRoot && parent < static_cast<int32_t>(i) ? parent : kRoot;
    if (has_draft_rows) draft_rows[i] = draft.draft_rows[PlaceAfter(parents[i])];
  }
  draft.parents = parents;
  if (has_draft_rows) draft.draft_rows = draft_rows;
  task->parents_by_slot = false;
}

void RoundCopier::CopyAnswer(const RanRound& round, uint32_t index, CopyArena* arena,
                             TaskCopy* out) const {
  const RoundBatch& batch = round.batch;
  const Task& task = out->task;
  if (batch.decisions != nullptr) {
    out->decisions = arena->Copy(batch.decisions + int64_t{index} * batch.decisions_stride,
                                 int64_t{task.draft.num_nodes} + 1);
  }
  if (round.status != RoundStatus::kOk) return;
  out->outcome = batch.outcomes[index];
  const TaskOutcome& outcome = out->outcome;
  const int64_t first_token = int64_t{index} * batch.tokens_stride;
  out->tokens = arena->Copy(batch.tokens + first_token, outcome.num_tokens);
  if (batch.path != nullptr && outcome.num_accepted > 0) {
    out->path = arena->Copy(batch.path + first_token, outcome.num_accepted);
  }
  const int32_t per_token = NumScores(task.scores);
  if (per_token == 0 || batch.scores == nullptr) return;
  auto* const scores = arena->Take<TokenScore>(static_cast<size_t>(per_token) *
                                               static_cast<size_t>(outcome.num_tokens));
  out->scores = scores;
  for (int64_t j = 0; scores != nullptr && j < outcome.num_tokens; ++j) {
    std::memcpy(scores + j * per_token, batch.scores + (first_token + j) * batch.scores_stride,
                static_cast<size_t>(per_token) * sizeof(TokenScore));
  }
}

void RoundCopier::CopyPlaces(const RanRound& round, TraceLevel level, uint32_t index,
                             CopyArena* arena, TaskCopy* out) const {
  Task& task = out->task;
  const auto num_places = static_cast<size_t>(task.draft.num_nodes) + 1;
  const PlaceEdits* const from = round.is_intact ? task.places : nullptr;
  task.places = nullptr;
  const Sequence* const sequence = round.sequences.empty() ? nullptr : round.sequences[index];
  // A failed grammar did not fill the places.
  if (round.is_intact && sequence != nullptr && !sequence->grammar.empty() &&
      !sequence->grammar_failed) {
    auto* const states = arena->Take<uint64_t>(num_places);
    for (size_t i = 0; states != nullptr && i < num_places; ++i) {
      states[i] = sequence->grammar.StateAt(static_cast<int32_t>(i));
    }
    out->grammar_states = states;
  }
  if (from == nullptr) return;
  auto* const places = arena->Take<PlaceEdits>(num_places);
  auto* const masks = arena->Take<int32_t>(level >= TraceLevel::kHashes ? num_places : 0);
  for (size_t i = 0; i < num_places; ++i) {
    PlaceEdits place = from[i];
    if (level == TraceLevel::kRows) {
      place.overrides = arena->Copy(place.overrides, place.num_overrides);
    } else {
      place.overrides = nullptr;
    }
    if (places == nullptr) continue;
    if (level >= TraceLevel::kHashes) {
      masks[i] = place.grammar_mask == nullptr ? -1 : rows_.FindGrammarMask(place.grammar_mask);
    }
    place.grammar_mask = nullptr;  // the matcher may drop it after the round
    places[i] = place;
  }
  task.places = places;
  if (level >= TraceLevel::kHashes) out->grammar_masks = masks;
}

}  // namespace specd
