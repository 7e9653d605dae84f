#include "daemon/recorder/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string_view>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// A disk that took nothing is tried again after a second, and then after twice as long each time.
constexpr int64_t kRetryMinNs = kSecondNs;
constexpr int64_t kRetryMaxNs = 64 * kSecondNs;

std::string_view FileNameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

int64_t UnixNowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

}  // namespace

SessionFile::SessionFile(const SessionTrace* trace, const WriterParts& parts, TraceLosses* losses,
                         Begin begin)
    : trace_(*trace),
      parts_(parts),
      losses_(*losses),
      begin_(std::move(begin)),
      retry_pause_ns_(kRetryMinNs) {}

TraceFile* SessionFile::Open() {
  if (file_.has_value()) return &*file_;
  if (is_paused()) return nullptr;
  absl::StatusOr<TraceFile> made = Make();
  if (!made.ok()) {
    Fail(made.status());
    return nullptr;
  }
  file_.emplace(*std::move(made));
  losses_.BeginFile();
  if (absl::Status status = begin_(*file_); !status.ok()) {
    Fail(status);
    return nullptr;
  }
  return &*file_;
}

absl::StatusOr<TraceFile> SessionFile::Make() {
  const TraceSession& session = trace_.session();
  const TraceFile::Paths paths = parts_.shelf->NextPaths(session.session_id);
  TraceInfo info;
  info.specd_version = parts_.process->specd_version;
  info.build = parts_.process->build;
  info.backend = session.backend;
  info.processor = session.device.empty() ? parts_.process->processor : session.device;
  info.tokenizer = FileNameOf(parts_.process->tokenizer);
  info.row_file = FileNameOf(paths.rows);
  info.options = parts_.options->text;
  info.vocab_size = static_cast<uint32_t>(session.limits.vocab_size);
  info.session = session.session_id;
  info.start_ns = parts_.clock->NowNs();
  info.start_unix_ns = UnixNowNs();
  info.eos_token_ids = session.eos_token_ids;
  absl::StatusOr<TraceFile> file = TraceFile::Create(paths, info, *parts_.create_file);
  // A file that was begun holds nothing. A file that was there before is not the recorder's.
  if (!file.ok() && ErrorCodeOf(file.status()) != SPECD_ERROR_STATE) parts_.shelf->Remove(paths);
  return file;
}

void SessionFile::Close() {
  if (!file_.has_value()) return;
  WriteDrops();
  if (!file_.has_value()) return;  // the drops found no room
  if (absl::Status status = file_->Finish(); !status.ok()) return Fail(status);
  Shelve();
}

void SessionFile::Shelve() {
  parts_.shelf->CloseOpen(trace_.session().session_id);
  parts_.shelf->Add(file_->paths(), file_->size_bytes());
  file_.reset();
}

void SessionFile::KeepToBound() {
  if (!file_.has_value()) return;
  parts_.shelf->SetOpen(trace_.session().session_id, file_->size_bytes());
  if (file_->size_bytes() >= parts_.shelf->file_bytes_max()) Close();
}

// The file stays, with the part that still goes into it: if the row file is full, the rounds before
// are whole. A full disk may have room again later.
void SessionFile::Fail(const absl::Status& status) {
  Pause(status);
  if (!file_.has_value()) return;
  (void)file_->Finish();
  losses_.AddRounds(file_->num_pending_rounds());
  Shelve();
}

void SessionFile::Pause(const absl::Status& error) {
  losses_.SetDiskError(std::string(error.message()));
  retry_ns_ = parts_.clock->NowNs() + retry_pause_ns_;
  retry_pause_ns_ = std::min(2 * retry_pause_ns_, kRetryMaxNs);
}

void SessionFile::Resume() {
  retry_ns_ = 0;
  retry_pause_ns_ = kRetryMinNs;
}

void SessionFile::WriteDrops() {
  if (!file_.has_value()) return;
  const std::optional<TraceDrops> drops = losses_.TakeDrops();
  if (!drops.has_value()) return;
  if (absl::Status status = file_->Write(*drops); !status.ok()) {
    losses_.PutBack();
    Fail(status);
  }
}

void SessionFile::Tick() {
  if (!file_.has_value() && !losses_.disk_error().empty()) (void)Open();
  WriteDrops();
  if (!file_.has_value()) return;
  if (absl::Status status = file_->Flush(); !status.ok()) return Fail(status);
  Resume();
  KeepToBound();
}

absl::StatusOr<TraceDump> SessionFile::BringUpToDate() {
  if (Open() == nullptr) return NoFile();
  WriteDrops();
  if (!file_.has_value()) return NoFile();
  if (absl::Status status = file_->Flush(); !status.ok()) {
    Fail(status);
    return status;
  }
  return TraceDump{.path = file_->paths().trace,
                   .num_rounds = file_->num_rounds(),
                   .num_lost = losses_.num_lost()};
}

absl::Status SessionFile::NoFile() const {
  return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                   fmt::format("no file can be written: {}", losses_.disk_error()));
}

}  // namespace specd
