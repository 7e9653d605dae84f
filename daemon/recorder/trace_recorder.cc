#include "daemon/recorder/trace_recorder.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// The thread looks at the rings this often; a ring that fills up wakes it before. Rounds then cost
// no system call.
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr absl::Duration kIdlePause = absl::Milliseconds(200);
constexpr int64_t kTickNs = 1'000'000'000;
constexpr int64_t kLogPauseNs = 60 * kTickNs;

// Makes the directory, and its path absolute: a host may change its working directory.
absl::Status PrepareDirectory(std::string* path) {
  const std::string directory = *path;
  const int error = mkdir(directory.c_str(), 0700) == 0 ? EEXIST : errno;
  struct stat info = {};
  if (error != EEXIST) {
    return MakeErrnoError(
        SPECD_ERROR_INVALID_ARGUMENT, "trace",
        fmt::format("trace = {}: no such directory, and it cannot be made", directory), error);
  }
  if (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "trace",
                     fmt::format("trace = {} is not a directory", directory));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return MakeErrnoError(SPECD_ERROR_PERMISSION, "trace",
                          fmt::format("trace = {}: no file can be made there", directory), errno);
  }
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::canonical(directory, ignored);
  if (!ignored) *path = absolute;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceRecorder>> TraceRecorder::Start(const Options& asked) {
  Options options = asked;
  if (absl::Status status = PrepareDirectory(&options.trace.directory); !status.ok()) return status;
  std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(options));
  // The thread takes no signal: they are for the threads of the host.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  recorder->thread_ = std::thread([raw = recorder.get()] { raw->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return recorder;
}

TraceRecorder::TraceRecorder(const Options& options) : options_(options), shelf_(options.trace) {}

std::shared_ptr<SessionTrace> TraceRecorder::Attach(TraceSession session, MemoryShare memory) {
  auto trace = std::make_shared<SessionTrace>(options_.trace, std::move(session), options_.clock,
                                              &bell_, std::move(memory));
  {
    const std::lock_guard lock(mutex_);
    attached_.push_back(trace);
    has_news_.store(true, std::memory_order_release);
  }
  Doorbell(&bell_).Ring();
  return trace;
}

absl::StatusOr<TraceDump> TraceRecorder::Dump(uint64_t session_id, absl::Duration timeout) {
  const TraceOptions& trace = options_.trace;
  if (trace.flight > 0 && (trace.triggers & kTriggerRequest) == 0) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "trace_options",
        "the trigger \"request\" is not among triggers; add it, or leave triggers out");
  }
  auto request = std::make_shared<Request>();
  request->session_id = session_id;
  std::unique_lock lock(mutex_);
  if (stop_.load(std::memory_order_relaxed)) {
    return MakeError(SPECD_ERROR_SHUTDOWN, "", "the recorder has stopped");
  }
  requests_.push_back(request);
  has_news_.store(true, std::memory_order_release);
  Doorbell(&bell_).Ring();
  const bool is_done = answered_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                                          [&request] { return request->is_done; });
  if (is_done) return request->result;
  return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                   fmt::format("the disk has not taken the trace within {}; look into {} later",
                               absl::FormatDuration(timeout), trace.directory));
}

void TraceRecorder::DumpAll() {
  dump_all_.store(true, std::memory_order_release);
  Doorbell(&bell_).Ring();
}

void TraceRecorder::Stop() {
  const std::lock_guard lock(stop_mutex_);
  if (!thread_.joinable()) return;
  {
    // No request comes later: each is answered.
    const std::lock_guard requests_lock(mutex_);
    stop_.store(true, std::memory_order_release);
  }
  Doorbell(&bell_).Ring();
  thread_.join();
}

// ---- the thread

void TraceRecorder::Run() {
  shelf_.Adopt();
  int64_t tick_ns = options_.clock->NowNs();
  bool stops = false;
  while (!stops) {
    // Asked before the records are taken: those that were there before the stop are written.
    stops = stop_.load(std::memory_order_acquire);
    TakeSessions();
    const bool worked = DrainAll();
    AnswerRequests();
    FinishEnded();
    if (const int64_t now_ns = options_.clock->NowNs(); now_ns - tick_ns >= kTickNs) {
      tick_ns = now_ns;
      TickAll();
    }
    if (!stops) {
      Doorbell(&bell_).Wait({.timeout = worked ? kPause : kIdlePause},
                            [this] { return HasWork(); });
    }
  }
  for (const auto& writer : writers_) {
    writer->DrainAll();
    writer->Finish();
  }
  writers_.clear();
}

bool TraceRecorder::HasWork() {
  if (stop_.load(std::memory_order_relaxed) || dump_all_.load(std::memory_order_relaxed) ||
      has_news_.load(std::memory_order_relaxed)) {
    return true;
  }
  return std::any_of(writers_.begin(), writers_.end(), [](const auto& writer) {
    return writer->trace().ended() || writer->trace().ring().IsFillingUp();
  });
}

void TraceRecorder::TakeSessions() {
  if (!has_news_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  for (std::shared_ptr<SessionTrace>& trace : attached_) {
    writers_.push_back(std::make_unique<SessionWriter>(
        std::move(trace), WriterParts{.options = &options_.trace,
                                      .process = &options_.process,
                                      .create_file = &options_.create_file,
                                      .log = &options_.log,
                                      .shelf = &shelf_,
                                      .clock = options_.clock}));
  }
  attached_.clear();
  has_news_.store(!requests_.empty(), std::memory_order_release);
}

bool TraceRecorder::DrainAll() {
  bool worked = false;
  for (const auto& writer : writers_) {
    worked = writer->Drain() || worked;
    if (shelf_.IsOverfull()) KeepToBound();
  }
  return worked;
}

void TraceRecorder::KeepToBound() {
  for (const auto& writer : writers_) writer->KeepToBound();
}

void TraceRecorder::AnswerRequests() {
  if (dump_all_.exchange(false, std::memory_order_acquire)) {
    for (const auto& writer : writers_) writer->DumpForSignal();
  }
  std::deque<std::shared_ptr<Request>> requests;
  {
    const std::lock_guard lock(mutex_);
    requests.swap(requests_);
    has_news_.store(!attached_.empty(), std::memory_order_release);
  }
  for (const std::shared_ptr<Request>& request : requests) {
    const auto found =
        std::find_if(writers_.begin(), writers_.end(), [&request](const auto& writer) {
          return writer->trace().session().session_id == request->session_id;
        });
    absl::StatusOr<TraceDump> result =
        MakeError(SPECD_ERROR_NOT_FOUND, "", "the session has no trace any more");
    if (found != writers_.end()) {
      (*found)->DrainAll();
      result = (*found)->Dump(kTriggerRequest);
    }
    const std::lock_guard lock(mutex_);
    request->result = std::move(result);
    request->is_done = true;
    answered_.notify_all();
  }
}

void TraceRecorder::FinishEnded() {
  std::erase_if(writers_, [](const auto& writer) {
    // Asked before the ring: what was published before the end is taken.
    if (!writer->trace().ended()) return false;
    writer->DrainAll();
    writer->Finish();
    return true;
  });
}

void TraceRecorder::TickAll() {
  for (const auto& writer : writers_) writer->Tick();
  num_deleted_ += shelf_.TakeDeleted();
  const int64_t now_ns = options_.clock->NowNs();
  if (num_deleted_ == 0 || options_.log == nullptr || now_ns < log_deleted_ns_) return;
  log_deleted_ns_ = now_ns + kLogPauseNs;
  options_.log(TraceSeverity::kInfo,
               fmt::format("trace: {} old files were deleted, because the trace is larger than "
                           "total_mib = {}, or has more files than total_files = {}",
                           std::exchange(num_deleted_, 0), options_.trace.total_bytes >> 20,
                           options_.trace.total_files));
}

}  // namespace specd
