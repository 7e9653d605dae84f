#include "daemon/recorder/session_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/recorder/round_record.h"

namespace specd {
namespace {

// The bounds of one Drain: other sessions and the clock have their turn.
constexpr size_t kDrainMax = 1000;
constexpr int64_t kDrainNs = 200'000'000;

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

// In the order of time, as every other record of a file.
absl::Status WriteInOrder(std::vector<TraceOpening> openings, TraceFile* file) {
  std::sort(openings.begin(), openings.end(), [](const TraceOpening& a, const TraceOpening& b) {
    return std::tie(a.time_ns, a.sequence) < std::tie(b.time_ns, b.sequence);
  });
  for (const TraceOpening& opening : openings) {
    if (absl::Status status = file->Write(opening); !status.ok()) return status;
  }
  return absl::OkStatus();
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

SessionWriter::SessionWriter(std::shared_ptr<SessionTrace> trace, const WriterParts& parts)
    : trace_(std::move(trace)),
      parts_(parts),
      options_(*parts.options),
      losses_(trace_.get(), parts.log, parts.clock),
      file_(trace_.get(), parts, &losses_, [this](TraceFile& file) { return WriteKnown(&file); }),
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
  CheckDrafts(copy, &round);
  const auto rows = RowsOf(copy);
  bool has_bad_row = false;
  for (const TraceAnswer& answer : round.answers) {
    has_bad_row = has_bad_row || answer.status == RoundStatus::kBadDistribution;
  }
  if (is_flight()) {
    Remember(std::move(round), rows);
  } else {
    file_.Put(true, [&](TraceFile& file) { return file.Write(&round, rows); });
  }
  // After the round is written: a file that begins with it has the state before it.
  for (const TraceAnswer& answer : copy.answers) {
    if (!IsCommitted(SequenceResult{.status = answer.status})) continue;  // it may have no sums
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
  } else if (file_.is_open()) {
    file_.Put(false, [&](TraceFile& file) { return file.Write(*opening); });
  } else {
    (void)file_.Open();  // which begins with the sequences that are known
  }
}

void SessionWriter::TakeEnd(const TraceEnd& end) {
  if (is_flight()) {
    flight_.Add(end);
  } else {
    file_.Put(false, [&](TraceFile& file) { return file.Write(end); });
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
    file_.Put(false, [&](TraceFile& file) {
      return file.WriteMetadata(
          "mismatch", {{"round", fmt::format("{}", copy.number)}, {"difference", difference}});
    });
  }
  Trigger(kTriggerMismatch);
}

void SessionWriter::CheckDrafts(const RoundCopy& copy, TraceRound* round) {
  if (options_.check_drafts == 0 || copy.level != TraceLevel::kRows || !copy.has_run) return;
  if (++num_with_drafts_ % options_.check_drafts != 0) return;
  if (draft_check_ == nullptr) {
    auto made = DraftCheck::Create(trace_->session().limits);
    if (!made.ok()) return losses_.Warn(std::string(made.status().message()));
    draft_check_ = *std::move(made);
  }
  const std::string sentence = draft_check_->Take(copy, round);
  if (sentence.empty()) return;
  losses_.WarnOfDrafts(sentence);
  if (is_flight()) return;
  file_.Put(false, [&](TraceFile& file) {
    return file.WriteMetadata("drafts",
                              {{"round", fmt::format("{}", copy.number)}, {"sentence", sentence}});
  });
}

absl::Status SessionWriter::WriteKnown(TraceFile* file) {
  std::vector<TraceOpening> openings;
  for (const auto& [handle, known] : known_) {
    if (!known.is_closed) openings.push_back(known.opening);
  }
  return WriteInOrder(std::move(openings), file);
}

// ---- every second

void SessionWriter::Tick() {
  if (!is_flight()) file_.Tick();
  losses_.Log();
  if (is_flight()) ForgetClosed();
}

void SessionWriter::Finish() {
  file_.Close();
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
  // A full disk is not written to at each trigger. A person who asks is not made to wait.
  if (!file_.is_paused()) DumpIfNew(cause);
}

void SessionWriter::DumpIfNew(TraceTrigger cause) {
  // One cause often comes for many sequences at once: then there is nothing new to write.
  if (!is_flight() || (options_.triggers & cause) == 0 || num_since_dump_ == 0) return;
  DumpAndLog(cause);
}

void SessionWriter::DumpForSignal() {
  if (is_flight()) return DumpIfNew(kTriggerSignal);
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
  if (!is_flight()) return file_.BringUpToDate();
  const bool is_new = num_since_dump_ > 0 || !last_dump_.has_value();
  // The file may have been deleted, by the shelf or by a person.
  if (is_new || access(last_dump_->path.c_str(), F_OK) != 0) return WriteFlight(cause);
  last_dump_->num_lost = losses_.num_lost();
  return *last_dump_;
}

absl::StatusOr<TraceDump> SessionWriter::WriteFlight(TraceTrigger cause) {
  const uint64_t session_id = trace_->session().session_id;
  // Makes room before the file is written.
  parts_.shelf->SetOpen(session_id, flight_.num_bytes());
  const absl::Cleanup is_closed = [this, session_id] { parts_.shelf->CloseOpen(session_id); };
  absl::StatusOr<TraceFile> file = file_.Make();
  if (!file.ok()) {
    file_.Pause(file.status());
    return file.status();
  }
  const std::unordered_set<SequenceHandle> opened = flight_.OpenedHere();
  const std::unordered_set<SequenceHandle> named = flight_.Named();
  const std::unordered_map<SequenceHandle, uint32_t> kept_before = flight_.KeptBefore();
  absl::Status status =
      file->WriteMetadata("trigger", {{"cause", std::string(TriggerName(cause))},
                                      {"time_ns", fmt::format("{}", parts_.clock->NowNs())},
                                      {"session", fmt::format("{}", session_id)},
                                      {"rounds", fmt::format("{}", flight_.num_rounds())}});
  const auto keep = [&status](absl::Status next) {
    if (status.ok()) status = std::move(next);
  };
  std::vector<TraceOpening> openings;
  for (const auto& [handle, known] : known_) {
    const bool is_wanted = !known.is_closed || named.contains(handle);
    if (!is_wanted || opened.contains(handle)) continue;
    openings.push_back(known.opening);  // with the tokens kept up to now
    const auto before = kept_before.find(handle);
    if (before != kept_before.end()) openings.back().kept_tokens = before->second;
  }
  keep(WriteInOrder(std::move(openings), &*file));
  std::vector<std::span<const std::byte>> rows;
  for (FlightLog::Entry& entry : flight_.entries()) {
    if (auto* flight = std::get_if<FlightRound>(&entry)) {
      if (flight->is_left_out) continue;
      rows.clear();
      for (size_t i = 0; i < flight->row_offsets.size(); ++i) {
        rows.push_back(
            std::span(flight->bytes).subspan(flight->row_offsets[i], flight->row_sizes[i]));
      }
      absl::Status written = file->Write(&flight->round, rows);
      if (!IsRefusedRecord(written)) {
        keep(std::move(written));
      } else if (!std::exchange(flight->is_left_out, true)) {
        losses_.LeaveOut(std::string(written.message()));
      }
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
  if (!status.ok()) {
    if (drops.has_value()) losses_.PutBack();
    // The rounds are still in memory. The file would only fill the disk.
    TraceShelf::Remove(file->paths());
    file_.Pause(status);
    return status;
  }
  parts_.shelf->CloseOpen(session_id);
  parts_.shelf->Add(file->paths(), file->size_bytes());
  file_.Resume();
  num_since_dump_ = 0;
  last_dump_ = dump;
  return dump;
}

}  // namespace specd
