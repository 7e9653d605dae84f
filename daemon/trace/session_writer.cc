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
// A disk that took nothing is tried again after a second, and then after twice as long each time.
constexpr int64_t kRetryMinNs = kSecondNs;
constexpr int64_t kRetryMaxNs = 64 * kSecondNs;
// The bounds of one Drain: other sessions and the clock have their turn.
constexpr size_t kDrainMax = 1000;
constexpr int64_t kDrainNs = kSecondNs / 5;

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
      losses_(trace_.get(), parts.log, parts.clock),
      retry_pause_ns_(kRetryMinNs),
      flight_(options_.flight, options_.buffer_bytes) {}

// ---- records

bool SessionWriter::Drain() {
  const int64_t end_ns = parts_.clock->NowNs() + kDrainNs;
  for (size_t num_taken = 0; num_taken < kDrainMax; ++num_taken) {
    const auto record = trace_->ring().Front();
    if (!record.has_value()) return num_taken > 0;
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
    if (parts_.clock->NowNs() > end_ns) break;
  }
  return true;
}

void SessionWriter::TakeRound(const RoundCopy& copy) {
  TraceRound round;
  MakeTraceRound(copy, &round);
  const auto rows = RowsOf(copy);
  bool has_bad_row = false;
  for (const TraceAnswer& answer : round.answers) {
    has_bad_row = has_bad_row || answer.status == RoundStatus::kBadDistribution;
  }
  if (is_flight()) {
    Remember(std::move(round), rows);
  } else {
    Put(true, [&](TraceFile& file) { return file.Write(&round, rows); });
  }
  // After the round is written: a file that begins with it has the state before it.
  for (const TraceAnswer& answer : copy.answers) {
    if (answer.status == RoundStatus::kAborted) continue;  // such an answer has no sums
    const auto known = known_.find(answer.sequence);
    if (known != known_.end()) known->second.opening.kept_tokens = answer.total_kept;
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
    if (!made.ok()) return losses_.Warn(std::string(made.status().message()));
    check_ = *std::move(made);
  }
  const std::string difference = check_->FindDifference(copy);
  if (difference.empty()) return;
  ++num_mismatches_;
  losses_.WarnOfMismatch(
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
  losses_.BeginFile();
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
  info.processor = session.device.empty() ? parts_.process->processor : session.device;
  info.tokenizer = FileNameOf(parts_.process->tokenizer);
  info.row_file = FileNameOf(paths.rows);
  info.options = options_.text;
  info.vocab_size = static_cast<uint32_t>(session.limits.vocab_size);
  info.session = session.session_id;
  info.start_ns = parts_.clock->NowNs();
  info.start_unix_ns = UnixNowNs();
  info.eos_token_ids = session.eos_token_ids;
  absl::StatusOr<TraceFile> file = TraceFile::Create(paths, info, *parts_.create_file);
  // A file that was begun holds nothing. One that was there before belongs to somebody else.
  if (!file.ok() && ErrorCodeOf(file.status()) != SPECD_ERROR_STATE) parts_.shelf->Remove(paths);
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

// The file stays, with what still goes into it: if the row file is full, the rounds before are
// whole. A full disk may have room again later.
void SessionWriter::Lose(const absl::Status& status, bool is_round) {
  if (is_round) losses_.AddRound();
  if (status.ok()) return;  // no file was open
  losses_.SetDiskError(std::string(status.message()));
  retry_ns_ = parts_.clock->NowNs() + retry_pause_ns_;
  retry_pause_ns_ = std::min(2 * retry_pause_ns_, kRetryMaxNs);
  if (!file_.has_value()) return;
  (void)file_->Finish();
  parts_.shelf->Add(file_->paths(), file_->size_bytes());
  file_.reset();
}

void SessionWriter::WriteDrops() {
  if (!file_.has_value()) return;
  const std::optional<TraceDrops> drops = losses_.TakeDrops();
  if (!drops.has_value()) return;
  if (absl::Status status = file_->Write(*drops); !status.ok()) {
    losses_.PutBack();
    Lose(status, false);
  }
}

// ---- every second

void SessionWriter::Tick() {
  if (!is_flight() && !file_.has_value() && !losses_.disk_error().empty()) (void)File();
  WriteDrops();
  if (file_.has_value()) {
    if (absl::Status status = file_->Flush(); !status.ok()) {
      Lose(status, false);
    } else {
      retry_pause_ns_ = kRetryMinNs;
    }
  }
  losses_.Log();
  if (is_flight()) ForgetClosed();
}

void SessionWriter::Finish() {
  CloseFile();
  losses_.EndPause();
  losses_.Log();
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
  if (is_flight()) return Trigger(kTriggerSignal);
  DumpAndLog(kTriggerSignal);
}

void SessionWriter::DumpAndLog(TraceTrigger cause) {
  const absl::StatusOr<TraceDump> dump = Dump(cause);
  if (dump.ok()) {
    losses_.Inform(
        fmt::format("{}: {} rounds in {}", TriggerName(cause), dump->num_rounds, dump->path));
  } else {
    losses_.Warn(fmt::format("{}: {}", TriggerName(cause), std::string(dump.status().message())));
  }
}

absl::StatusOr<TraceDump> SessionWriter::Dump(TraceTrigger cause) {
  if (is_flight()) return WriteFlight(cause);
  if (File() == nullptr) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                     fmt::format("no file can be written: {}", losses_.disk_error()));
  }
  WriteDrops();
  if (!file_.has_value()) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "trace",
                     fmt::format("no file can be written: {}", losses_.disk_error()));
  }
  if (absl::Status status = file_->Flush(); !status.ok()) {
    Lose(status, false);
    return status;
  }
  return TraceDump{.path = file_->paths().trace,
                   .num_rounds = file_->num_rounds(),
                   .num_lost = losses_.num_lost()};
}

absl::StatusOr<TraceDump> SessionWriter::WriteFlight(TraceTrigger cause) {
  absl::StatusOr<TraceFile> file = MakeFile();
  if (!file.ok()) return file.status();
  const std::unordered_set<SequenceHandle> opened = flight_.OpenedHere();
  const std::unordered_set<SequenceHandle> named = flight_.Named();
  const std::unordered_map<SequenceHandle, uint32_t> kept_before = flight_.KeptBefore();
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
    if (!is_wanted || opened.contains(handle)) continue;
    TraceOpening opening = known.opening;  // with the tokens kept up to now
    const auto before = kept_before.find(handle);
    if (before != kept_before.end()) opening.kept_tokens = before->second;
    keep(file->Write(opening));
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
  losses_.BeginFile();
  const std::optional<TraceDrops> drops = losses_.TakeDrops();
  if (drops.has_value()) keep(file->Write(*drops));
  const TraceDump dump = {.path = file->paths().trace,
                          .num_rounds = file->num_rounds(),
                          .num_lost = losses_.num_lost()};
  keep(file->Finish());
  parts_.shelf->Add(file->paths(), file->size_bytes());
  if (!status.ok() && drops.has_value()) losses_.PutBack();
  if (!status.ok()) return status;
  num_since_dump_ = 0;
  return dump;
}

}  // namespace specd
