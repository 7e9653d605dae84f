#include "daemon/recorder/row_copier.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>

#include "daemon/recorder/wide_row.h"
#include "daemon/trace/row_hash.h"

namespace specd {
namespace {

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

const std::byte* RowBytesAt(const TensorView& tensor, uint32_t row) {
  return static_cast<const std::byte*>(RowAt(tensor, row).data);
}

uint64_t BytesOf(const RanRound& round, TraceTensor tensor) {
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

// Target row, draft row, mask and grammar mask of every place.
size_t NumRowsMax(const BackendLimits& limits) {
  return size_t{4} * static_cast<size_t>(limits.max_batch) *
         (static_cast<size_t>(limits.max_draft) + 1);
}

size_t RowBytesMax(const BackendLimits& limits) {
  return static_cast<size_t>(limits.vocab_size) * sizeof(float);
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

uint64_t RowCopier::SizeBytes(const BackendLimits& limits) {
  return NumRowsMax(limits) * (sizeof(RowKey) + sizeof(MemoryRead)) + 2 * RowBytesMax(limits);
}

RowCopier::RowCopier(const BackendLimits& limits) {
  rows_.reserve(NumRowsMax(limits));
  reads_.reserve(rows_.capacity());
  hashed_row_ = std::make_unique_for_overwrite<std::byte[]>(RowBytesMax(limits));
  narrow_row_ = std::make_unique_for_overwrite<std::byte[]>(RowBytesMax(limits));
}

void RowCopier::List(const RanRound& round, TraceLevel level, std::span<const uint32_t> tasks,
                     bool all_places) {
  rows_.clear();
  if (level < TraceLevel::kHashes) return;
  for (const uint32_t index : tasks) ListPlaces(round, static_cast<int32_t>(index), all_places);
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

void RowCopier::ListPlaces(const RanRound& round, int32_t task_index, bool all_places) {
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

int32_t RowCopier::FindGrammarMask(const uint32_t* words) const {
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

bool RowCopier::CopyNarrow(const RanRound& round, const RowKey& row, std::byte* to) const {
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
bool RowCopier::Copy(const RanRound& round, TraceLevel level, CopyArena* arena, RowCopy* rows) {
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

}  // namespace specd
