// RowBudget bounds the rows that a command copies from an untrusted trace by the size of its row
// file.
//
// A recorder writes each row of each round once, so all rows that a file of records names fit into
// its row file. A trace that names more bytes would have a copy grow without bound. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "daemon/trace/row_file.h"

namespace specd::replay {

class RowBudget {
 public:
  // The rows that follow are those of this file of the recording.
  void Begin(size_t file) {
    if (file_ == file) return;
    file_ = file;
    taken_bytes_ = 0;
  }
  // A row of the file is about to be copied. INVALID_ARGUMENT: the rows have more bytes than the
  // file.
  absl::Status Take(uint64_t size_bytes, const RowFileReader& rows) {
    taken_bytes_ += size_bytes;
    if (taken_bytes_ <= rows.file_size_bytes()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the rounds name more rows than the row file has: no recorder writes such a trace");
  }

 private:
  std::optional<size_t> file_;
  uint64_t taken_bytes_ = 0;
};

}  // namespace specd::replay
