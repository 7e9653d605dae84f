#include "daemon/trace/session_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "daemon/trace/round_record.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kRetryNs = kSecondNs;
constexpr int64_t kLogPauseNs = 60 * kSecondNs;

std::string_view FileNameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

int64_t UnixNowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

uint64_t RowBytesOf(const RoundCopy& copy, TraceTensor tensor) {
  if (tensor == TraceTensor::kTarget) return RowBytes(copy.target);
  if (tensor == TraceTensor::kDraft) return RowBytes(copy.draft);
  return MaskRowBytes(copy.target.vocab_size);
}

std::vector<std::span<const std::byte>> RowsOf(const RoundCopy& copy) {
  std::vector<std::span<const std::byte>> rows;
  if (copy.level != TraceLevel::kRows) return rows;
  for (const RowCopy& row : copy.rows) {
    rows.emplace_back(row.bytes, static_cast<size_t>(RowBytesOf(copy, row.tensor)));
  }
  return rows;
}

}  // namespace

std::string ProcessorName() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

SessionWriter::SessionWriter(std::shared_ptr<SessionTrace> trace, const Parts& parts)
    : trace_(std::move(trace)),
      parts_(parts),
      options_(*parts.options),
      flight_(options_.flight, options_.buffer_bytes) {}

// ---- records

bool SessionWriter::Drain() {
  bool has_any = false;
  while (const auto record = trace_->ring().Front()) {
    has_any = true;
    switch (static_cast<TraceKind>(record->kind)) {
      case TraceKind::kRound:
        TakeRound(*reinterpret_cast<const RoundCopy*>(record->bytes.data()));
        break;
      case TraceKind::kOpening: {
        TraceOpening* opening = nullptr;
        std::memcpy(&opening, record->bytes.data(), sizeof(opening));
        TakeOpening(std::unique_ptr<TraceOpening>(opening));
        break;
      }
      case TraceKind::kEnd: {
        TraceEnd end;
        std::memcpy(&end, record->bytes.data(), sizeof(end));
        TakeEnd(end);
        break;
      }
    }
    trace_->ring().Pop();
  }
  return has_any;
}

void SessionWriter::TakeRound(const RoundCopy& copy) {
  TraceRound round;
  MakeTraceRound(copy, &round);
  const auto rows = RowsOf(copy);
  bool has_bad_row = false;
  for (const TraceAnswer& answer : round.answers) {
    has_bad_row = has_bad_row || answer.status == RoundStatus::kBadDistribution;
    const auto known = known_.find(answer.sequence);
    if (known != known_.end()) known->second.opening.kept_tokens = answer.total_kept;
  }
  if (is_flight()) {
    Remember(std::move(round), rows);
  } else {
    Put(true, [&](TraceFile& file) { return file.Write(&round, rows); });
  }
  Check(copy);
  if (has_bad_row) Trigger(kTriggerBadRow);
}

void SessionWriter::Remember(TraceRound round, std::span<const std::span<const std::byte>> rows) {
  FlightRound flight;
  flight.round = std::move(round);
  for (const std::span<const std::byte> row : rows) {
    flight.row_offsets.push_back(flight.bytes.size());
    flight.row_sizes.push_back(row.size());
    flight.bytes.insert(flight.bytes.end(), row.begin(), row.end());
  }
  flight_.Add(std::move(flight));
  ++num_since_dump_;
}

void SessionWriter::TakeOpening(std::unique_ptr<TraceOpening> opening) {
  // A fork has the parameters of its parent, which only this table knows.
  const auto parent = known_.find(opening->forked_from);
  if (parent != known_.end()) {
    TraceOpening forked = parent->second.opening;
    forked.time_ns = opening->time_ns;
    forked.sequence = opening->sequence;
    forked.forked_from = opening->forked_from;
    forked.request_id = opening->request_id;
    forked.seed = opening->seed;
    forked.kept_tokens = opening->kept_tokens;
    *opening = std::move(forked);
  }
  known_[opening->sequence] = {.opening = *opening, .is_closed = false};
  if (is_flight()) {
    flight_.Add(*opening);
  } else if (file_.has_value()) {
    Put(false, [&](TraceFile& file) { return file.Write(*opening); });
  } else {
    (void)File();  // which begins with the sequences that are known
  }
}

void SessionWriter::TakeEnd(const TraceEnd& end) {
  if (is_flight()) {
    flight_.Add(end);
  } else {
    Put(false, [&](TraceFile& file) { return file.Write(end); });
  }
  const auto known = known_.find(end.sequence);
  if (known != known_.end()) {
    if (end.reason == FinishReason::kNone) known->second.is_closed = true;
    if (end.reason != FinishReason::kNone) known->second.opening.kept_tokens = end.kept_tokens;
    if (known->second.is_closed && !is_flight()) known_.erase(known);
  }
  if (end.reason == FinishReason::kAbort) Trigger(kTriggerAbort);
}

void SessionWriter::Check(const RoundCopy& copy) {
  if (options_.check == 0 || copy.level != TraceLevel::kRows) return;
  if (++num_with_rows_ % options_.check != 0) return;
  if (check_ == nullptr) {
    auto made = ShadowCheck::Create(trace_->session().limits);
    if (!made.ok()) return LogAtMostEveryMinute(std::string(made.status().message()));
    check_ = *std::move(made);
  }
  const std::string difference = check_->FindDifference(copy);
  if (difference.empty()) return;
  ++num_mismatches_;
  LogAtMostEveryMinute(
      fmt::format("the CPU computes another answer: {}; {} of {} checked tasks "
                  "were in such rounds at least",
                  difference, num_mismatches_, check_->num_checked()));
  if (!is_flight()) {
    Put(false, [&](TraceFile& file) {
      return file.WriteMetadata(
          "mismatch", {{"round", fmt::format("{}", copy.number)}, {"difference", difference}});
    });
  }
  Trigger(kTriggerMismatch);
}

// ---- files

template <class Write>
void SessionWriter::Put(bool is_round, Write write) {
  TraceFile* const file = File();
  if (file == nullptr) return Lose(absl::OkStatus(), is_round);
  if (absl::Status status = write(*file); !status.ok()) return Lose(status, is_round);
  if (file->size_bytes() >= options_.file_bytes) CloseFile();
}

TraceFile* SessionWriter::File() {
  if (file_.has_value()) return &*file_;
  if (parts_.clock->NowNs() < retry_ns_) return nullptr;
  absl::StatusOr<TraceFile> made = MakeFile();
  if (!made.ok()) {
    Lose(made.status(), false);
    return nullptr;
  }
  file_.emplace(*std::move(made));
  at_begin_ = written_ = AllLosses();
  disk_error_.clear();
  for (const auto& [handle, known] : known_) {
    if (known.is_closed) continue;
    if (absl::Status status = file_->Write(known.opening); !status.ok()) {
      Lose(status, false);
      return nullptr;
    }
  }
  return &*file_;
}

absl::StatusOr<TraceFile> SessionWriter::MakeFile() {
  const TraceSession& session = trace_->session();
  const TraceFile::Paths paths = parts_.shelf->NextPaths(session.session_id);
  TraceInfo info;
  info.specd_version = parts_.process->specd_version;
  info.backend = session.backend;
  info.processor = parts_.process->processor;
  info.tokenizer = FileNameOf(parts_.process->tokenizer);
  info.row_file = FileNameOf(paths.rows);
  info.options = options_.text;
  info.vocab_size = static_cast<uint32_t>(session.limits.vocab_size);
  info.session = session.session_id;
  info.start_ns = parts_.clock->NowNs();
  info.start_unix_ns = UnixNowNs();
  info.eos_token_ids = session.eos_token_ids;
  absl::StatusOr<TraceFile> file = TraceFile::Create(paths, info, *parts_.create_file);
  // Files that were begun count, and go, as others do.
  if (!file.ok()) parts_.shelf->Add(paths, 0);
  return file;
}

void SessionWriter::CloseFile() {
  if (!file_.has_value()) return;
  WriteDrops();
  if (!file_.has_value()) return;  // the drops found no room
  if (absl::Status status = file_->Finish(); !status.ok()) return Lose(status, false);
  parts_.shelf->Add(file_->paths(), file_->size_bytes());
  file_.reset();
}

// The file stays as it is; readers take what is whole. A full disk may have room again later.
void SessionWriter::Lose(const absl::Status& status, bool is_round) {
  if (is_round) ++disk_.rounds;
  if (status.ok()) return;  // no file was open
  disk_error_ = std::string(status.message());
  retry_ns_ = parts_.clock->NowNs() + kRetryNs;
  if (!file_.has_value()) return;
  parts_.shelf->Add(file_->paths(), file_->size_bytes());
  file_.reset();
}

// ---- losses

SessionWriter::Losses SessionWriter::AllLosses() const {
  return {.rounds = disk_.rounds + trace_->dropped_rounds(),
          .rows = disk_.rows + trace_->dropped_rows(),
          .bytes = disk_.bytes + trace_->dropped_bytes()};
}

void SessionWriter::WriteDrops() {
  const Losses all = AllLosses();
  if (!file_.has_value() || (all.rounds == written_.rounds && all.rows == written_.rows)) return;
  written_ = all;
  const bool by_buffer = trace_->dropped_rows() + trace_->dropped_rounds() > 0;
  const TraceDrops drops = {.time_ns = parts_.clock->NowNs(),
                            .rounds = all.rounds - at_begin_.rounds,
                            .rows = all.rows - at_begin_.rows,
                            .bytes = all.bytes - at_begin_.bytes,
                            .why = by_buffer ? "the buffer was full" : "the disk took no more"};
  Put(false, [&](TraceFile& file) { return file.Write(drops); });
}

void SessionWriter::LogLosses() {
  const Losses all = AllLosses();
  if (all.rounds == logged_.rounds && all.rows == logged_.rows) return;
  if (parts_.clock->NowNs() < log_after_ns_) return;
  std::string why = disk_error_.empty() ? "the buffer was full; raise buffer_mib or every"
                                        : fmt::format("the disk took no more: {}", disk_error_);
  if (trace_->too_large_bytes() > 0) {
    why = fmt::format(
        "a round of {} MiB needs a buffer of twice that; raise buffer_mib, or record rows of one "
        "request",
        (trace_->too_large_bytes() >> 20) + 1);
  }
  LogAtMostEveryMinute(fmt::format("{} rounds were not recorded, and {} without their rows: {}",
                                   all.rounds - logged_.rounds, all.rows - logged_.rows, why));
  logged_ = all;
}

void SessionWriter::LogAtMostEveryMinute(std::string_view text) {
  const int64_t now_ns = parts_.clock->NowNs();
  if (*parts_.log == nullptr || now_ns < log_after_ns_) return;
  log_after_ns_ = now_ns + kLogPauseNs;
  (*parts_.log)(TraceSeverity::kWarning,
                fmt::format("trace of session {}: {}", trace_->session().session_id, text));
}

void SessionWriter::Tick() {
  if (!is_flight() && !file_.has_value() && !disk_error_.empty()) (void)File();
  WriteDrops();
  if (file_.has_value()) {
    if (absl::Status status = file_->Flush(); !status.ok()) Lose(status, false);
  }
  LogLosses();
  if (is_flight()) ForgetClosed();
}

void SessionWriter::Finish() {
  CloseFile();
  log_after_ns_ = 0;
  LogLosses();
}

// ---- the flight recorder

void SessionWriter::ForgetClosed() {
  const std::unordered_set<SequenceHandle> named = flight_.Named();
  std::erase_if(known_, [&named](const auto& entry) {
    return entry.second.is_closed && !named.contains(entry.first);
  });
}

void SessionWriter::Trigger(TraceTrigger cause) {
  // One cause often comes for many sequences at once: then there is nothing new to write.
  if (!is_flight() || (options_.triggers & cause) == 0 || num_since_dump_ == 0) return;
  DumpAndLog(cause);
}

void SessionWriter::DumpForSignal() {
  if (!is_flight() || (options_.triggers & kTriggerSignal) != 0) DumpAndLog(kTriggerSignal);
}

void SessionWriter::DumpAndLog(TraceTrigger cause) {
  const absl::StatusOr<TraceDump> dump = Dump(cause);
  if (*parts_.log == nullptr) return;
  const uint64_t session = trace_->session().session_id;
  if (dump.ok()) {
    (*parts_.log)(TraceSeverity::kInfo,
                  fmt::format("trace of session {}: {}: {} rounds in {}", session,
                              TriggerName(cause), dump->num_rounds, dump->path));
  } else {
    LogAtMostEveryMinute(
        fmt::format("{}: {}", TriggerName(cause), std::string(dump.status().message())));
  }
}

absl::StatusOr<TraceDump> SessionWriter::Dump(TraceTrigger cause) {
  if (is_flight()) return WriteFlight(cause);
  if (File() == nullptr) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                     fmt::format("no file can be written: {}", disk_error_));
  }
  WriteDrops();
  if (!file_.has_value()) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                     fmt::format("no file can be written: {}", disk_error_));
  }
  if (absl::Status status = file_->Flush(); !status.ok()) {
    Lose(status, false);
    return status;
  }
  return TraceDump{.path = file_->paths().trace, .num_rounds = file_->num_rounds()};
}

absl::StatusOr<TraceDump> SessionWriter::WriteFlight(TraceTrigger cause) {
  absl::StatusOr<TraceFile> file = MakeFile();
  if (!file.ok()) return file.status();
  const std::unordered_set<SequenceHandle> opened = flight_.OpenedHere();
  const std::unordered_set<SequenceHandle> named = flight_.Named();
  absl::Status status =
      file->WriteMetadata("trigger", {{"cause", std::string(TriggerName(cause))},
                                      {"time_ns", fmt::format("{}", parts_.clock->NowNs())},
                                      {"session", fmt::format("{}", trace_->session().session_id)},
                                      {"rounds", fmt::format("{}", flight_.num_rounds())}});
  const auto keep = [&status](absl::Status next) {
    if (status.ok()) status = std::move(next);
  };
  for (const auto& [handle, known] : known_) {
    const bool is_wanted = !known.is_closed || named.contains(handle);
    if (is_wanted && !opened.contains(handle)) keep(file->Write(known.opening));
  }
  std::vector<std::span<const std::byte>> rows;
  for (FlightLog::Entry& entry : flight_.entries()) {
    if (auto* flight = std::get_if<FlightRound>(&entry)) {
      rows.clear();
      for (size_t i = 0; i < flight->row_offsets.size(); ++i) {
        rows.push_back(
            std::span(flight->bytes).subspan(flight->row_offsets[i], flight->row_sizes[i]));
      }
      keep(file->Write(&flight->round, rows));
    } else if (const auto* opening = std::get_if<TraceOpening>(&entry)) {
      keep(file->Write(*opening));
    } else {
      keep(file->Write(std::get<TraceEnd>(entry)));
    }
  }
  const TraceDump dump = {.path = file->paths().trace, .num_rounds = file->num_rounds()};
  keep(file->Finish());
  parts_.shelf->Add(file->paths(), file->size_bytes());
  if (!status.ok()) return status;
  num_since_dump_ = 0;
  return dump;
}

}  // namespace specd
