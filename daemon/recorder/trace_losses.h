// TraceLosses counts what the trace of one session could not keep, and tells its file and the log.
//
// The session counts the rounds that found no room in its ring; this class adds those that the disk
// did not take. One thread: the writer's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/recorder/session_trace.h"
#include "daemon/trace/trace_record.h"

namespace specd {

enum class TraceSeverity { kInfo, kWarning };
// Takes a line for the log of the process. libspecd has no logger.
using TraceLog = std::function<void(TraceSeverity severity, std::string_view text)>;

class TraceLosses {
 public:
  // The pointers outlive the object; *log may be null.
  TraceLosses(const SessionTrace* trace, const TraceLog* log, Clock* clock)
      : trace_(*trace), log_(*log), clock_(*clock) {}

  void AddRounds(uint64_t count) { disk_rounds_ += count; }
  // A round that no file takes, whatever the disk.
  void LeaveOut(std::string_view why) {
    AddRounds(1);
    left_out_ = why;
  }
  void SetDiskError(std::string_view error) { disk_error_ = error; }
  const std::string& disk_error() const { return disk_error_; }

  // Rounds that were not recorded, and rounds without their rows, since the session began.
  uint64_t num_lost() const { return All().rounds + All().rows; }

  // A new file takes records again. It also says what was lost since the last drops were written,
  // while no file was open.
  void BeginFile();
  // The losses that the file does not say yet; nothing if there are none.
  std::optional<TraceDrops> TakeDrops();
  // The drops that were taken last were not written.
  void PutBack() { written_ = before_; }

  // Logs new losses, at most once a minute.
  void Log();
  // Logs a line about the session, at most once a minute. Mismatches and drafts have pauses of
  // their own, so that losses do not hide them.
  void Warn(std::string_view text) { Warn(text, &log_after_ns_); }
  void WarnOfMismatch(std::string_view text) { Warn(text, &log_mismatch_after_ns_); }
  void WarnOfDrafts(std::string_view text) { Warn(text, &log_drafts_after_ns_); }
  void Inform(std::string_view text) const;
  // The next line is logged at once: the session has ended.
  void EndPause() { log_after_ns_ = 0; }

 private:
  struct Sums {
    uint64_t rounds = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;
    friend bool operator==(const Sums&, const Sums&) = default;
  };
  Sums All() const;
  std::string Why() const;
  void Warn(std::string_view text, int64_t* log_after_ns);

  const SessionTrace& trace_;
  const TraceLog& log_;
  Clock& clock_;
  uint64_t disk_rounds_ = 0;
  std::string disk_error_;  // of the last loss; empty: the disk takes records
  std::string left_out_;    // why a round was left out
  Sums at_begin_;           // of the file
  Sums written_;
  Sums before_;               // written_ before the last drops
  std::string error_before_;  // of the disk, before the file began
  Sums logged_;
  int64_t log_after_ns_ = 0;
  int64_t log_mismatch_after_ns_ = 0;
  int64_t log_drafts_after_ns_ = 0;
};

}  // namespace specd
