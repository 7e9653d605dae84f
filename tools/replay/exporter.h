// Exporter is one format of `specd-replay export`: it takes the rounds of a trace in order and
// writes a file at the end.
//
// NpzExporter, SafetensorsExporter and ChromeExporter implement it. One thread.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/replay/command.h"
#include "tools/replay/output_file.h"
#include "tools/replay/recorded_rows.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {

struct ExportedRound {
  const TraceRound& round;
  const TraceInfo& info;
  const SequenceBook& book;
  const TraceFilter& filter;
  int64_t start_ns = 0;
  size_t file = 0;                      // TraceItem::file
  const RowFileReader* rows = nullptr;  // null: not recorded or not asked for
};

class Exporter {
 public:
  virtual ~Exporter() = default;
  virtual absl::Status Take(const ExportedRound& round) = 0;
  virtual absl::Status Finish(const SequenceBook& book, OutputFile* out) = 0;
};

std::unique_ptr<Exporter> MakeNpzExporter(bool with_rows);
std::unique_ptr<Exporter> MakeSafetensorsExporter();
std::unique_ptr<Exporter> MakeChromeExporter();

}  // namespace specd::replay
