// TraceFile is one MCAP file of a trace with its row file, for the writer of a session.
//
// It encodes the records, writes rows before the record that names them, and counts bytes. The info
// is the first message of the file and has the log time of the message after it, because a file
// begins with records that are older than itself. After an error of one of the two files, such as a
// full disk, Finish completes the other one. An object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/file_io.h"
#include "daemon/trace/log_times.h"
#include "daemon/trace/mcap_writer.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_record.h"

namespace specd {

// Makes a file that does not exist yet. Tests give files that fill up, or that block.
using CreateFile = std::function<absl::StatusOr<FileWriter>(const std::string& path)>;

// Whether a Write was refused because of the record: the file has nothing of it and takes others.
inline bool IsRefusedRecord(const absl::Status& status) { return absl::IsInvalidArgument(status); }

class TraceFile {
 public:
  struct Paths {
    std::string trace;
    std::string rows;  // empty: there are none
  };

  // Makes the files. The info is written with the first record, or by Flush or Finish before it.
  static absl::StatusOr<TraceFile> Create(const Paths& paths, const TraceInfo& info,
                                          const CreateFile& create);

  absl::Status Write(const TraceOpening& opening);
  absl::Status Write(const TraceEnd& end);
  absl::Status Write(const TraceDrops& drops);
  // Writes the rows, sets their offsets, and writes the round. rows[i] has the bytes of
  // round->rows[i], whose tensors are in ascending order. REQUIRES: `rows` is empty, or has an
  // element for each row.
  absl::Status Write(TraceRound* round, std::span<const std::span<const std::byte>> rows);
  absl::Status WriteMetadata(std::string_view name, const McapMap& values) {
    return mcap_.WriteMetadata(name, values);
  }

  // After this a crash of the process loses nothing that was written before.
  absl::Status Flush();
  absl::Status Finish();

  // The size of both files, with the part that is not written yet.
  uint64_t size_bytes() const;
  uint64_t num_rounds() const { return num_rounds_; }
  // The rounds that no whole chunk holds yet. After an error they are lost.
  uint64_t num_pending_rounds() const { return mcap_.num_pending(channel_ids_[kRound]); }
  const Paths& paths() const { return paths_; }

 private:
  enum Channel { kInfo, kOpening, kEnd, kRound, kDrops, kNumChannels };

  TraceFile(Paths paths, const TraceInfo& info, McapWriter mcap, std::optional<RowFileWriter> rows)
      : paths_(std::move(paths)), info_(info), mcap_(std::move(mcap)), rows_(std::move(rows)) {}

  absl::Status AddChannels();
  template <class Record>
  absl::Status Put(Channel channel, int64_t time_ns, const Record& record);
  // Writes the info if it is not written yet. `first_ns` is the time of the record after it.
  absl::Status PutInfo(int64_t first_ns);

  Paths paths_;
  std::optional<TraceInfo> info_;  // until it is written
  LogTimes log_times_;
  McapWriter mcap_;
  std::optional<RowFileWriter> rows_;
  uint16_t channel_ids_[kNumChannels] = {};
  uint32_t sequences_[kNumChannels] = {};  // messages of each channel
  uint64_t num_rounds_ = 0;
  std::string payload_;
};

}  // namespace specd
