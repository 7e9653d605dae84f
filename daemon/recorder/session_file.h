// SessionFile keeps the trace file of one session: it makes files, follows a full one with another,
// and counts the rounds that the disk did not take.
//
// An error of the disk closes the file. A new one is tried after a second, and then after pauses
// that double. One thread: the recorder's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/recorder/session_trace.h"
#include "daemon/recorder/trace_file.h"
#include "daemon/recorder/trace_losses.h"
#include "daemon/recorder/trace_options.h"
#include "daemon/recorder/trace_shelf.h"

namespace specd {

// The facts of the process that every file begins with.
struct TraceProcess {
  std::string specd_version;
  std::string build;      // kBuildIdentity
  std::string processor;  // the CPU's or the device's name
  std::string tokenizer;  // the path of the file; empty: none
};

// The parts that the writers of a process share. The pointers outlive the writers.
struct WriterParts {
  const TraceOptions* options = nullptr;
  const TraceProcess* process = nullptr;
  const CreateFile* create_file = nullptr;
  const TraceLog* log = nullptr;
  TraceShelf* shelf = nullptr;
  Clock* clock = nullptr;
};

// The answer to dump_trace.
struct TraceDump {
  std::string path;
  uint64_t num_rounds = 0;  // in this file
  uint64_t num_lost = 0;    // rounds of the session that were not recorded, or without their rows
};

class SessionFile {
 public:
  // Writes the records that follow the info of every file.
  using Begin = std::function<absl::Status(TraceFile& file)>;

  // The pointers outlive the object.
  SessionFile(const SessionTrace* trace, const WriterParts& parts, TraceLosses* losses,
              Begin begin);

  // Calls write(file), with a file that is open; counts an error as a loss of the disk. A record
  // that the file refuses is left out, and the file stays.
  template <class Write>
  void Put(bool is_round, Write write) {
    TraceFile* const file = Open();
    const absl::Status status = file == nullptr ? absl::OkStatus() : write(*file);
    if (IsRefusedRecord(status)) {
      if (is_round) losses_.LeaveOut(std::string(status.message()));
      return;
    }
    if (is_round && (file == nullptr || !status.ok())) losses_.AddRounds(1);
    if (!status.ok()) return Fail(status);
    if (file != nullptr) KeepToBound();
  }

  // The open file, or a new one; null while the disk has no room.
  TraceFile* Open();
  bool is_open() const { return file_.has_value(); }
  // Counts the open file, and closes it if it is full.
  void KeepToBound();
  // Writes the open chunk and the drops, and tries a new file after an error.
  void Tick();
  // Writes what is not written yet, and names the file.
  absl::StatusOr<TraceDump> BringUpToDate();
  void Close();

  // Makes a file that the caller writes and finishes.
  absl::StatusOr<TraceFile> Make();

  // The disk took nothing: no new file for a while, which doubles each time.
  void Pause(const absl::Status& error);
  bool is_paused() const { return parts_.clock->NowNs() < retry_ns_; }
  // The disk took all: the next pause is short again.
  void Resume();

 private:
  void Fail(const absl::Status& status);
  void WriteDrops();
  // The file is written no more.
  void Shelve();
  absl::Status NoFile() const;

  const SessionTrace& trace_;
  const WriterParts parts_;
  TraceLosses& losses_;
  const Begin begin_;
  std::optional<TraceFile> file_;
  int64_t retry_ns_ = 0;  // no new file before
  int64_t retry_pause_ns_;
};

}  // namespace specd
