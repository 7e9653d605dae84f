#include "daemon/trace/round_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "daemon/trace/parameter_hash.h"
#include "daemon/trace/row_hash.h"
#include "daemon/trace/task_fields.h"
#include "daemon/trace/wide_row.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr uint64_t kArenaAlign = 16;

MemorySpace SpaceOf(const RoundBatch& batch, TraceTensor tensor) {
  switch (tensor) {
    case TraceTensor::kTarget:
      return batch.target.space;
    case TraceTensor::kDraft:
      return batch.draft.space;
    case TraceTensor::kMask:
      return batch.mask.space;
    case TraceTensor::kGrammarMask:
      break;
  }
  return MemorySpace::kHost;
}

// Whether the row can be copied.
bool IsReadable(const RanRound& round, TraceTensor tensor) {
  const MemorySpace space = SpaceOf(round.batch, tensor);
  return space == MemorySpace::kHost || (space == MemorySpace::kDevice && round.backend != nullptr);
}

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

const std::byte* RowBytesAt(const TensorView& tensor, uint32_t row) {
  return static_cast<const std::byte*>(RowAt(tensor, row).data);
}

}  // namespace

int32_t NumReadPlaces(const Task& task, const TaskOutcome& outcome) {
  if (IsTree(task)) return task.draft.num_nodes + 1;
  const int32_t last =
      task.method == VerifyMethod::kBlock ? outcome.num_drafts : outcome.num_accepted;
  return std::min(last, task.draft.num_nodes) + 1;
}

uint64_t RowBytes(const TensorView& tensor) {
  return static_cast<uint64_t>(tensor.vocab_size) * static_cast<uint64_t>(SizeBytes(tensor.dtype));
}

uint64_t MaskRowBytes(int32_t vocab_size) {
  return (static_cast<uint64_t>(vocab_size) + 31) / 32 * sizeof(uint32_t);
}

// Arena gives out pieces of the copy's memory one after the other. Without memory it only counts.
class RoundCopier::Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kArenaAlign);
    used_ = (used_ + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
    std::byte* const place = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += count * sizeof(T);
    return reinterpret_cast<T*>(place);
  }
  // A copy of `count` elements; null if `from` is null.
  template <class T>
  const T* Copy(const T* from, int64_t count) {
    if (from == nullptr) return nullptr;
    T* const to = Take<T>(static_cast<size_t>(count));
    if (to != nullptr) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return to;
  }

  bool counts_only() const { return memory_ == nullptr; }
  uint64_t used() const { return used_; }

 private:
  std::byte* const memory_;
  uint64_t used_ = 0;
};

// Target row, draft row, mask and grammar mask of every place.
static size_t NumRowsMax(const BackendLimits& limits) {
  return size_t{4} * static_cast<size_t>(limits.max_batch) *
         (static_cast<size_t>(limits.max_draft) + 1);
}

static size_t RowBytesMax(const BackendLimits& limits) {
  return static_cast<size_t>(limits.vocab_size) * sizeof(float);
}

uint64_t RoundCopier::SizeBytes(const BackendLimits& limits) {
  return NumRowsMax(limits) * (sizeof(RowKey) + sizeof(MemoryRead)) + 2 * RowBytesMax(limits);
}

RoundCopier::RoundCopier(const BackendLimits& limits) {
  rows_.reserve(NumRowsMax(limits));
  reads_.reserve(rows_.capacity());
  hashed_row_ = std::make_unique_for_overwrite<std::byte[]>(RowBytesMax(limits));
  narrow_row_ = std::make_unique_for_overwrite<std::byte[]>(RowBytesMax(limits));
}

uint64_t RoundCopier::Measure(const RanRound& round, const Selection& selection) {
  ListRows(round, selection);
  Arena arena(nullptr);
  Walk(round, selection, &arena);
  measured_ = arena.used();
  return measured_;
}

RoundCopy* RoundCopier::Copy(const RanRound& round, const Selection& selection, std::byte* memory) {
  Arena arena(memory);
  RoundCopy* const copy = Walk(round, selection, &arena);
  SPECD_CHECK(arena.used() <= measured_);
  return copy;
}

// ---- rows

void RoundCopier::ListRows(const RanRound& round, const Selection& selection) {
  rows_.clear();
  if (selection.level < TraceLevel::kHashes) return;
  for (const uint32_t index : selection.tasks) {
    ListPlaces(round, static_cast<int32_t>(index), selection.all_places);
  }
  const auto key = [](const RowKey& row) {
    return std::tuple(row.tensor, row.index, reinterpret_cast<uintptr_t>(row.bytes));
  };
  std::sort(rows_.begin(), rows_.end(),
            [&key](const RowKey& a, const RowKey& b) { return key(a) < key(b); });
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  uint32_t num_grammar_masks = 0;
  for (RowKey& row : rows_) {
    if (row.tensor == TraceTensor::kGrammarMask) row.index = num_grammar_masks++;
  }
}

void RoundCopier::ListPlaces(const RanRound& round, int32_t task_index, bool all_places) {
  const Task& task = round.batch.tasks[task_index];
  const Draft& draft = task.draft;
  const bool has_target = draft.target_rows != nullptr && IsReadable(round, TraceTensor::kTarget);
  const bool has_draft = draft.draft_rows != nullptr && draft.kinds != nullptr &&
                         IsReadable(round, TraceTensor::kDraft);
  const int32_t num_places =
      all_places ? draft.num_nodes + 1 : NumReadPlaces(task, round.batch.outcomes[task_index]);
  for (int32_t i = 0; i < num_places; ++i) {
    if (has_target) {
      const uint32_t row = draft.target_rows[i];
      rows_.push_back({TraceTensor::kTarget, row, RowBytesAt(round.batch.target, row)});
    }
    const bool is_drawn =
        i < draft.num_nodes && (task.parents_by_slot ? AnyDrawn(draft) : IsDrawn(draft, i));
    if (has_draft && is_drawn) {
      const uint32_t row = draft.draft_rows[i];
      rows_.push_back({TraceTensor::kDraft, row, RowBytesAt(round.batch.draft, row)});
    }
    if (task.places == nullptr) continue;
    const PlaceEdits& place = task.places[i];
    if (place.mask_row >= 0 && IsReadable(round, TraceTensor::kMask)) {
      const uint32_t* words =
          round.batch.mask.words + int64_t{place.mask_row} * round.batch.mask.row_stride;
      rows_.push_back({TraceTensor::kMask, static_cast<uint32_t>(place.mask_row),
                       reinterpret_cast<const std::byte*>(words)});
    }
    if (place.grammar_mask != nullptr) {
      rows_.push_back(
          {TraceTensor::kGrammarMask, 0, reinterpret_cast<const std::byte*>(place.grammar_mask)});
    }
  }
}

int32_t RoundCopier::FindGrammarMask(const uint32_t* words) const {
  // The masks are at the end of the list, in the order of their addresses.
  const auto* const bytes = reinterpret_cast<const std::byte*>(words);
  const auto first = std::partition_point(rows_.begin(), rows_.end(), [](const RowKey& row) {
    return row.tensor < TraceTensor::kGrammarMask;
  });
  const auto found = std::lower_bound(
      first, rows_.end(), bytes,
      [](const RowKey& row, const std::byte* wanted) { return std::less<>()(row.bytes, wanted); });
  if (found == rows_.end() || found->bytes != bytes) return -1;
  return static_cast<int32_t>(found->index);
}

uint64_t RoundCopier::BytesOf(const RanRound& round, TraceTensor tensor) const {
  switch (tensor) {
    case TraceTensor::kTarget:
      return RowBytes(round.batch.target);
    case TraceTensor::kDraft:
      return RowBytes(round.batch.draft);
    case TraceTensor::kMask:
    case TraceTensor::kGrammarMask:
      return MaskRowBytes(round.batch.target.vocab_size);
  }
  return 0;
}

// ---- the copy

RoundCopy* RoundCopier::Walk(const RanRound& round, const Selection& selection, Arena* arena) {
  RoundCopy* const copy = arena->Take<RoundCopy>(1);
  TaskCopy* const tasks = arena->Take<TaskCopy>(selection.tasks.size());
  for (size_t i = 0; i < selection.tasks.size(); ++i) {
    TaskCopy task;
    CopyTask(round, selection, selection.tasks[i], arena, &task);
    if (!arena->counts_only()) tasks[i] = task;
  }
  RowCopy* const rows = arena->Take<RowCopy>(rows_.size());
  if (!CopyRows(round, selection.level, arena, rows)) return nullptr;
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

bool RoundCopier::CopyNarrow(const RanRound& round, const RowKey& row, std::byte* to) const {
  const TensorView& draft = round.batch.draft;
  const std::byte* from = row.bytes;
  if (draft.space == MemorySpace::kDevice) {
    const auto size_bytes =
        static_cast<size_t>(NumElements(draft) * ::specd::SizeBytes(draft.dtype));
    const MemoryRead read{.from = from, .to = narrow_row_.get(), .size_bytes = size_bytes};
    if (!round.backend->ReadMemory({&read, 1}).ok()) return false;
    from = narrow_row_.get();
  }
  WidenRow(draft, round.draft_columns, from, to);
  return true;
}

// Reads of the device wait for all copies together.
bool RoundCopier::CopyRows(const RanRound& round, TraceLevel level, Arena* arena, RowCopy* rows) {
  reads_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const RowKey& row = rows_[i];
    const uint64_t size_bytes = BytesOf(round, row.tensor);
    const bool is_on_device = SpaceOf(round.batch, row.tensor) == MemorySpace::kDevice;
    std::byte* bytes = nullptr;
    if (level == TraceLevel::kRows) bytes = arena->Take<std::byte>(size_bytes);
    if (arena->counts_only()) continue;
    rows[i] = {.tensor = row.tensor, .index = row.index, .bytes = bytes};
    const std::byte* source = row.bytes;
    if (row.tensor == TraceTensor::kDraft && round.batch.draft.columns != nullptr) {
      std::byte* const to = bytes == nullptr ? hashed_row_.get() : bytes;
      if (!CopyNarrow(round, row, to)) return false;
      if (bytes == nullptr) rows[i].hash = RowHash({to, size_bytes});
      continue;
    }
    if (is_on_device) {
      std::byte* const to = bytes == nullptr ? hashed_row_.get() : bytes;
      reads_.push_back({.from = source, .to = to, .size_bytes = size_bytes});
      source = to;
    }
    if (bytes != nullptr) {
      if (!is_on_device) std::memcpy(bytes, source, size_bytes);
      continue;  // the writer computes the hashes of rows that it has
    }
    if (!reads_.empty() && !round.backend->ReadMemory(reads_).ok()) return false;
    reads_.clear();
    rows[i].hash = RowHash({source, size_bytes});
  }
  return reads_.empty() || round.backend->ReadMemory(reads_).ok();
}

void RoundCopier::CopyTask(const RanRound& round, const Selection& selection, uint32_t index,
                           Arena* arena, TaskCopy* out) const {
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
void RoundCopier::CopyTree(const PlaceDecision* record, bool has_draft_rows, Arena* arena,
                           Task* task) {
  Draft& draft = task->draft;
  const auto nodes = static_cast<size_t>(draft.num_nodes);
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

void RoundCopier::CopyAnswer(const RanRound& round, uint32_t index, Arena* arena,
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

void RoundCopier::CopyPlaces(const RanRound& round, TraceLevel level, uint32_t index, Arena* arena,
                             TaskCopy* out) const {
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
      masks[i] = place.grammar_mask == nullptr ? -1 : FindGrammarMask(place.grammar_mask);
    }
    place.grammar_mask = nullptr;  // the matcher may drop it after the round
    places[i] = place;
  }
  task.places = places;
  if (level >= TraceLevel::kHashes) out->grammar_masks = masks;
}

}  // namespace specd
