// TraceWriter writes a trace and its row file, for cut and anonymise.
//
// Both files appear whole, when Commit is called, or not at all. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/log_times.h"
#include "daemon/trace/mcap_writer.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_record.h"
#include "tools/replay/output_file.h"

namespace specd::replay {

// The row file of a trace that TraceWriter writes: `trace_path` with the ending .rows.
std::string RowPathBeside(const std::string& trace_path);

class TraceWriter {
 public:
  // The row file is RowPathBeside(path). It is written if `with_rows` is set.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Create(const std::string& path,
                                                             bool with_rows);

  // The info comes first; its row_file is set here. It is written with the record after it, whose
  // log time it has, because openings are older than their file.
  void Write(TraceInfo info);
  absl::Status Write(const TraceOpening& opening);
  absl::Status Write(const TraceEnd& end);
  absl::Status Write(const TraceRound& round);
  absl::Status Write(const TraceDrops& drops);

  // Writes the rows of a round one after the other, and returns the offset of the first.
  absl::StatusOr<uint64_t> WriteRows(std::span<const std::span<const std::byte>> rows);
  bool has_rows() const { return rows_.has_value(); }

  absl::Status Commit();

 private:
  TraceWriter(TemporaryName trace_name, TemporaryName row_name, McapWriter trace)
      : trace_name_(std::move(trace_name)),
        row_name_(std::move(row_name)),
        trace_(std::move(trace)) {}
  absl::Status AddChannels();
  template <class Record>
  absl::Status Put(size_t channel, int64_t time_ns, const Record& record);
  absl::Status PutInfo(int64_t first_ns);

  static constexpr size_t kNumChannels = 5;
  TemporaryName trace_name_;
  TemporaryName row_name_;
  McapWriter trace_;
  std::optional<RowFileWriter> rows_;
  std::optional<TraceInfo> info_;  // until it is written
  LogTimes log_times_;
  uint16_t channels_[kNumChannels] = {};
  uint32_t counts_[kNumChannels] = {};
};

}  // namespace specd::replay
