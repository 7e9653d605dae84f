// RowColumns gathers the recorded rows of a trace as matrices, for the export.
//
// One matrix for target rows and one for draft rows, in the order of rounds, with the round and the
// index of each row. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "tools/replay/column_file.h"
#include "tools/replay/recorded_rows.h"
#include "tools/replay/row_budget.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {

// A round on its way into a file.
struct ExportedRound {
  const TraceRound& round;
  const TraceInfo& info;
  const SequenceBook& book;
  const TraceFilter& filter;
  size_t file = 0;                      // TraceItem::file
  const RowFileReader* rows = nullptr;  // null: not recorded or not asked for
};

struct RowMatrixColumns {
  TraceTensor tensor = TraceTensor::kTarget;
  DType dtype = DType::kFloat32;
  uint64_t count = 0;
  ColumnFile values = {};
  ColumnFile rounds = {};   // uint64
  ColumnFile indices = {};  // uint32, in the engine's tensor
};

class RowColumns {
 public:
  // INVALID_ARGUMENT if the rows of the trace have several types, which one matrix cannot hold, or
  // more bytes than the row file.
  absl::Status Take(const ExportedRound& round);

  // The place in its matrix of a row of the round that was taken last; -1: it was not recorded.
  int64_t PlaceOf(TraceTensor tensor, uint32_t index) const;

  uint64_t vocab_size() const { return vocab_size_; }
  RowMatrixColumns& target() { return target_; }
  RowMatrixColumns& draft() { return draft_; }

 private:
  absl::Status TakeRow(const ExportedRound& round, const TraceRow& row, RowMatrixColumns* matrix);

  uint64_t vocab_size_ = 0;
  std::map<std::pair<TraceTensor, uint32_t>, int64_t> places_;  // of the round that was taken last
  RecordedRows rows_;
  RowBudget budget_;
  RowMatrixColumns target_;
  RowMatrixColumns draft_{.tensor = TraceTensor::kDraft};
};

}  // namespace specd::replay
