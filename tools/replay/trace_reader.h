// TraceReader reads the records of one trace for every command: the files of one recording, in
// their order, as a stream.
//
// A recording that was rotated is several files. The dumps of a flight recorder overlap: a round,
// an opening or an end that an earlier file has is left out. Memory is bounded by one chunk and one
// record, and with a flight recorder some words for each end. A torn file is a warning, and the
// records before the tear are used; any other error is final and names the file and the offset. The
// row file lies beside its trace. One thread.
//
//   TraceReader reader(paths, {});
//   TraceItem item;
//   absl::StatusOr<bool> more = true;
//   while ((more = reader.Next(&item)).ok() && *more) Take(item);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/mcap_reader.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_record.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {

using TraceRecord = std::variant<TraceInfo, TraceOpening, TraceEnd, TraceRound, TraceDrops>;

struct TraceItem {
  TraceRecord record;
  size_t file = 0;      // the index of its path
  uint64_t offset = 0;  // of the chunk that the record lies in
};

// The part of a recording that a command reads. Every member narrows it.
struct TraceFilter {
  std::optional<uint64_t> first_round;  // TraceRound::number
  std::optional<uint64_t> last_round;   // included
  std::string request_id;               // ends with '*': a prefix
  std::optional<SequenceHandle> sequence;

  bool TakesRound(uint64_t number) const {
    return !(first_round && number < *first_round) && !(last_round && number > *last_round);
  }
  bool TakesEverySequence() const { return request_id.empty() && !sequence.has_value(); }
  bool TakesSequence(SequenceHandle handle, std::string_view request) const;
};

class TraceReader {
 public:
  // `is_growing`: a recorder still writes the last file, so that its end is no damage.
  explicit TraceReader(std::vector<std::string> paths, bool is_growing = false)
      : paths_(std::move(paths)), is_growing_(is_growing) {}

  // Returns true with the next record, false at the end. CANCELLED after Ctrl-C.
  absl::StatusOr<bool> Next(TraceItem* item);

  // The info of the file that the last record is from. Null before its TraceInfo.
  const TraceInfo* info() const { return info_ ? &*info_ : nullptr; }
  // The time that times are counted from: the start of the first file, or its first round, which
  // may have been taken before its recorder made the file.
  int64_t start_ns() const { return start_ns_; }
  // The cause of the dump that this file is, by a flight recorder; empty: it is none.
  std::string Trigger() const;
  // The rows of that file, opened when asked for. An error names the file that is missing.
  absl::StatusOr<const RowFileReader*> Rows();
  // The same for a round of that file; null: the round names no row that was recorded.
  absl::StatusOr<const RowFileReader*> RowsOf(const TraceRound& round);

  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t file_size_bytes(size_t file) const { return sizes_[file]; }
  // Torn files and records of other programs, as sentences.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status OpenNextFile();
  void WarnOfEnd(std::string sentence);
  absl::StatusOr<bool> Decode(const McapMessage& message, TraceItem* item);
  void NoteStart(const TraceRecord& record);
  absl::Status CheckOrder(const TraceRecord& record, uint64_t offset);
  absl::StatusOr<bool> IsRepeated(const TraceItem& item);
  bool IsRepeatedOpening(const TraceOpening& opening) const;
  bool IsRepeatedEnd(const TraceEnd& end);
  void ShowProgress(const McapMessage& message);
  void MeasureAll();
  template <class Record>
  absl::Status Take(const McapMessage& message, TraceItem* item);

  std::vector<std::string> paths_;
  const bool is_growing_;
  size_t num_opened_ = 0;
  std::unique_ptr<McapReader> file_;
  std::optional<TraceInfo> info_;
  std::optional<uint64_t> session_;
  int64_t start_ns_ = 0;
  bool has_round_ = false;
  std::unique_ptr<RowFileReader> rows_;
  absl::Status rows_status_;
  std::vector<uint64_t> sizes_;
  std::vector<std::string> warnings_;
  bool has_foreign_ = false;
  // What the files before the present one have.
  uint64_t last_number_ = 0;       // of their rounds
  int64_t last_taken_ns_ = 0;      // the time of that round
  uint64_t file_last_number_ = 0;  // of the present file
  int64_t file_last_taken_ns_ = 0;
  bool is_flight_ = false;
  std::set<std::tuple<SequenceHandle, FinishReason, int64_t>> ends_;  // of a flight recorder
  std::unordered_set<SequenceHandle> closed_;                         // the same
  // The bytes of all files; those of rows count once a row was asked for.
  uint64_t all_bytes_ = 0;
  uint64_t all_row_bytes_ = 0;
  uint64_t bytes_before_ = 0;  // of the files before the present one
  uint64_t row_bytes_before_ = 0;
  uint64_t row_offset_ = 0;  // the rows of the present file up to here
  bool reads_rows_ = false;
  Progress progress_{std::chrono::seconds(1)};
};

// Whether the trace is a dump of a flight recorder, which has all rounds that it kept.
inline bool IsFlight(const TraceInfo& info) {
  return info.options.find("flight=") != std::string::npos;
}

// The paths, with the .mcap files in a directory in the place of it, in the order of their names.
absl::StatusOr<std::vector<std::string>> TraceFilesOf(const std::vector<std::string>& paths);

// The row file of a trace file: beside it, under the name that its TraceInfo has.
std::string RowPathOf(const std::string& trace_path, const TraceInfo& info);

}  // namespace specd::replay
