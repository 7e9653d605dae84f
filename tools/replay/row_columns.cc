#include "tools/replay/row_columns.h"

#include <fmt/format.h>

#include "tools/replay/names.h"

namespace specd::replay {

absl::Status RowColumns::Take(const ExportedRound& exported) {
  vocab_size_ = exported.info.vocab_size;
  places_.clear();
  if (exported.rows == nullptr) return absl::OkStatus();
  budget_.Begin(exported.file);
  rows_.Begin(exported.round, static_cast<int32_t>(exported.info.vocab_size), exported.rows);
  for (const TraceRow& row : exported.round.rows) {
    absl::Status status;
    if (row.tensor == TraceTensor::kTarget) status = TakeRow(exported, row, &target_);
    if (row.tensor == TraceTensor::kDraft) status = TakeRow(exported, row, &draft_);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

int64_t RowColumns::PlaceOf(TraceTensor tensor, uint32_t index) const {
  const auto place = places_.find({tensor, index});
  return place == places_.end() ? -1 : place->second;
}

absl::Status RowColumns::TakeRow(const ExportedRound& exported, const TraceRow& row,
                                 RowMatrixColumns* matrix) {
  const bool is_target = row.tensor == TraceTensor::kTarget;
  const DType dtype = is_target ? exported.round.target.dtype : exported.round.draft.dtype;
  const auto loaded = rows_.Load(row.tensor, row.index);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->has_value()) return absl::OkStatus();
  if (matrix->count > 0 && matrix->dtype != dtype) {
    return absl::InvalidArgumentError(fmt::format(
        "the {} rows are {} before round {}, and {} there: cut the trace there with --rounds",
        NameOf(row.tensor), NameOf(matrix->dtype), exported.round.number, NameOf(dtype)));
  }
  matrix->dtype = dtype;
  places_[{row.tensor, row.index}] = static_cast<int64_t>(matrix->count++);
  const std::span<const std::byte> bytes = rows_.Row(row.tensor, **loaded);
  if (absl::Status status = budget_.Take(bytes.size(), *exported.rows); !status.ok()) {
    return status;
  }
  matrix->values.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  matrix->rounds.Add(exported.round.number);
  matrix->indices.Add(row.index);
  return absl::OkStatus();
}

}  // namespace specd::replay
