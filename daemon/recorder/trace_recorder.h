// TraceRecorder writes the traces of a process: one thread takes the records of every session and
// writes them to files.
//
// A daemon or an embedded engine makes one if a trace is asked for, and attaches each session. A
// slow or full disk makes the thread late; then rounds are left out of the trace, and none waits.
// Any thread may call the public functions.
//
//   auto recorder = TraceRecorder::Start({.trace = options, .process = process, .clock = clock});
//   session_options.recorder = recorder->get();
//   ...
//   (*recorder)->Stop();   // after the sessions: the files are complete
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/recorder/session_trace.h"
#include "daemon/recorder/session_writer.h"
#include "daemon/recorder/trace_file.h"
#include "daemon/recorder/trace_options.h"
#include "daemon/recorder/trace_shelf.h"
#include "ipc/segment/doorbell.h"

namespace specd {

class TraceRecorder {
 public:
  struct Options {
    TraceOptions trace;
    TraceProcess process;
    Clock* clock = nullptr;
    TraceLog log;                                  // the recorder's thread calls it; null: silence
    CreateFile create_file = &FileWriter::Create;  // tests inject faults
  };

  // Makes the directory if only its last part is missing, and starts the thread. An error names the
  // field "trace". REQUIRES: options.trace.enabled().
  static absl::StatusOr<std::unique_ptr<TraceRecorder>> Start(const Options& asked);
  ~TraceRecorder() { Stop(); }
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // The trace of a new session. It ends with SessionTrace::EndSession.
  // `memory` is a share of SizeBytes, which the trace gives back when it is written.
  std::shared_ptr<SessionTrace> Attach(TraceSession session, MemoryShare memory = {});
  uint64_t SizeBytes(const BackendLimits& limits) const {
    return SessionTrace::SizeBytes(options_.trace, limits);
  }

  // Writes what the flight recorder of the session has, or without a flight recorder what is not
  // written yet, and waits for it. An error if the trigger "request" is off, or the disk does not
  // take the file in time.
  absl::StatusOr<TraceDump> Dump(uint64_t session_id, absl::Duration timeout);
  // The same for every session, without a wait: SIGUSR1.
  void DumpAll();

  // Writes everything, completes the files and ends the thread.
  void Stop();

 private:
  struct Request {
    uint64_t session_id = 0;
    bool is_done = false;  // guarded by mutex_
    absl::StatusOr<TraceDump> result = absl::UnknownError("");
  };

  explicit TraceRecorder(const Options& options);
  void Run();
  bool DrainAll();
  void KeepToBound();
  void TickAll();
  void TakeSessions();
  void AnswerRequests();
  void FinishEnded();
  bool HasWork();

  const Options options_;
  DoorbellLine bell_{};

  std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<std::shared_ptr<SessionTrace>> attached_;  // guarded by mutex_
  std::deque<std::shared_ptr<Request>> requests_;        // guarded by mutex_
  // Written under mutex_, read without it to decide whether to sleep.
  std::atomic<bool> has_news_{false};
  std::atomic<bool> dump_all_{false};
  std::atomic<bool> stop_{false};

  // Members that only the thread uses.
  TraceShelf shelf_;
  std::vector<std::unique_ptr<SessionWriter>> writers_;
  uint64_t num_deleted_ = 0;
  int64_t log_deleted_ns_ = 0;

  std::mutex stop_mutex_;
  std::thread thread_;  // guarded by stop_mutex_
};

}  // namespace specd
