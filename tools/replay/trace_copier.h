// TraceCopier copies a part of a trace into a new one: rounds, sequences, with or without rows, and
// as it is or anonymised.
//
// A sequence's opening is copied before its first round of the part. Rows are copied only if a task
// of the part names them, and at most as many bytes as the row file has. A record that is not
// consistent is copied as it is: verify names it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/anonymiser.h"
#include "tools/replay/row_budget.h"
#include "tools/replay/trace_reader.h"
#include "tools/replay/trace_writer.h"

namespace specd::replay {

class TraceCopier {
 public:
  struct Options {
    TraceFilter filter;
    bool with_rows = true;
    bool anonymised = false;
  };
  struct Counts {
    uint64_t rounds = 0;
    uint64_t sequences = 0;
    uint64_t rows = 0;
  };

  TraceCopier(TraceReader* reader, std::string path, Options options)
      : reader_(reader), path_(std::move(path)), options_(std::move(options)) {}

  // Writes the new trace. NOT_FOUND: no round passes the filter, and no file is written.
  absl::StatusOr<Counts> Run();

 private:
  absl::Status Take(TraceItem* item);
  absl::Status Begin(TraceInfo info);
  absl::Status TakeRound(TraceRound round);
  // Keeps the tasks and answers of the part. False: there are none.
  bool Select(TraceRound* round) const;
  absl::Status CopyRows(TraceRound* round);
  absl::Status WriteOpening(SequenceHandle sequence);
  bool Takes(SequenceHandle sequence) const;

  TraceReader* reader_;
  std::string path_;
  Options options_;
  Anonymiser anonymiser_;
  RowBudget budget_;
  std::unique_ptr<TraceWriter> writer_;
  std::unordered_map<SequenceHandle, TraceOpening> openings_;
  std::set<SequenceHandle> written_;
  std::map<size_t, TraceDrops> drops_;  // the last of each file
  Counts counts_;
};

}  // namespace specd::replay
