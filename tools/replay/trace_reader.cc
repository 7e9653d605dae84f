#include "tools/replay/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "daemon/trace/trace_codec.h"
#include "tools/replay/interrupt.h"

namespace specd::replay {
namespace {

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

// The recorder gives both files one name.
uint64_t RowSizeBeside(const std::string& path) {
  return SizeOf(std::filesystem::path(path).replace_extension(".rows").string());
}

bool HasRecordedRow(const TraceRound& round) {
  return std::any_of(round.rows.begin(), round.rows.end(),
                     [](const TraceRow& row) { return row.offset != kNoOffset; });
}

}  // namespace

bool TraceFilter::TakesSequence(SequenceHandle handle, std::string_view request) const {
  if (sequence && handle != *sequence) return false;
  if (request_id.empty()) return true;
  if (!request_id.ends_with('*')) return request == request_id;
  return request.starts_with(std::string_view(request_id).substr(0, request_id.size() - 1));
}

std::string RowPathOf(const std::string& trace_path, const TraceInfo& info) {
  return (std::filesystem::path(trace_path).parent_path() / info.row_file).string();
}

absl::StatusOr<std::vector<std::string>> TraceFilesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.path().extension() == ".mcap") inside.push_back(entry.path().string());
    }
    if (error) return absl::UnavailableError(fmt::format("{}: {}", path, error.message()));
    if (inside.empty()) return absl::NotFoundError(fmt::format("{}: no .mcap file in it", path));
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

absl::StatusOr<bool> TraceReader::Next(TraceItem* item) {
  for (;;) {
    if (WasInterrupted()) return Interrupted();
    if (file_ == nullptr) {
      if (num_opened_ == paths_.size()) {
        progress_.Clear();
        return false;
      }
      if (absl::Status status = OpenNextFile(); !status.ok()) return status;
      if (file_ == nullptr) continue;  // torn within its header
    }
    McapMessage message;
    const absl::StatusOr<bool> more = file_->Next(&message);
    if (!more.ok() && !IsTornFile(more.status())) return more.status();
    if (!more.ok()) {
      progress_.Clear();
      WarnOfEnd(fmt::format("{}: the records before that are used",
                            std::string(more.status().message())));
    }
    if (!more.ok() || !*more) {
      file_ = nullptr;
      continue;
    }
    const absl::StatusOr<bool> is_record = Decode(message, item);
    if (!is_record.ok()) return is_record.status();
    if (!*is_record) continue;
    ShowProgress(message);
    const absl::StatusOr<bool> is_repeated = IsRepeated(*item);
    if (!is_repeated.ok()) return is_repeated.status();
    if (*is_repeated) continue;
    NoteStart(item->record);
    return true;
  }
}

void TraceReader::MeasureAll() {
  for (const std::string& path : paths_) {
    all_bytes_ += SizeOf(path);
    all_row_bytes_ += RowSizeBeside(path);
  }
}

void TraceReader::ShowProgress(const McapMessage& message) {
  if (all_bytes_ == 0) MeasureAll();
  const uint64_t done = bytes_before_ + message.chunk_offset;
  if (!reads_rows_) return progress_.ShowBytes(done, all_bytes_);
  progress_.ShowBytes(done + row_bytes_before_ + row_offset_, all_bytes_ + all_row_bytes_);
}

absl::StatusOr<bool> TraceReader::IsRepeated(const TraceItem& item) {
  if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
    is_flight_ = IsFlight(*info);
  }
  if (const auto* opening = std::get_if<TraceOpening>(&item.record)) {
    return IsRepeatedOpening(*opening);
  }
  if (const auto* end = std::get_if<TraceEnd>(&item.record)) return IsRepeatedEnd(*end);
  const auto* const round = std::get_if<TraceRound>(&item.record);
  if (round == nullptr) return false;
  for (const TraceRow& row : round->rows) {
    if (row.offset != kNoOffset) row_offset_ = std::max(row_offset_, row.offset);
  }
  if (round->number <= last_number_) {
    if (round->times.taken <= last_taken_ns_) return true;
    return absl::InvalidArgumentError(
        fmt::format("{}: its round {} is younger than round {} of the files before it, so they are "
                    "of two recordings: give the files of one",
                    paths_[item.file], round->number, last_number_));
  }
  file_last_number_ = round->number;
  file_last_taken_ns_ = round->times.taken;
  return false;
}

// A dump names the sequences of its rounds, also those that were closed since. A command would open
// them a second time.
bool TraceReader::IsRepeatedOpening(const TraceOpening& opening) const {
  return is_flight_ && closed_.contains(opening.sequence);
}

bool TraceReader::IsRepeatedEnd(const TraceEnd& end) {
  if (!is_flight_) return false;
  if (end.reason == FinishReason::kNone) closed_.insert(end.sequence);
  return !ends_.insert({end.sequence, end.reason, end.time_ns}).second;
}

void TraceReader::NoteStart(const TraceRecord& record) {
  const auto* const round = std::get_if<TraceRound>(&record);
  if (round == nullptr) {
    if (num_opened_ == 1 && !has_round_) start_ns_ = info_->start_ns;
    return;
  }
  const TraceTimes& times = round->times;
  const int64_t first_ns = times.submitted != 0 ? times.submitted : times.taken;
  if (!std::exchange(has_round_, true) && first_ns != 0) start_ns_ = std::min(start_ns_, first_ns);
}

absl::Status TraceReader::OpenNextFile() {
  if (num_opened_ > 0) {
    bytes_before_ += SizeOf(paths_[num_opened_ - 1]);
    row_bytes_before_ += RowSizeBeside(paths_[num_opened_ - 1]);
  }
  row_offset_ = 0;
  last_number_ = std::max(last_number_, file_last_number_);
  last_taken_ns_ = std::max(last_taken_ns_, file_last_taken_ns_);
  const std::string& path = paths_[num_opened_++];
  info_.reset();
  rows_ = nullptr;
  rows_status_ = absl::OkStatus();
  absl::StatusOr<McapReader> opened = McapReader::Open(path, {});
  if (!opened.ok() && IsTornFile(opened.status())) {
    sizes_.push_back(0);
    WarnOfEnd(std::string(opened.status().message()));
    return absl::OkStatus();
  }
  if (!opened.ok()) return opened.status();
  file_ = std::make_unique<McapReader>(*std::move(opened));
  sizes_.push_back(file_->file_size_bytes());
  return absl::OkStatus();
}

void TraceReader::WarnOfEnd(std::string sentence) {
  const bool is_written = is_growing_ && num_opened_ == paths_.size();
  if (!is_written) warnings_.push_back(std::move(sentence));
}

template <class Record>
absl::Status TraceReader::Take(const McapMessage& message, TraceItem* item) {
  const std::string& path = paths_[num_opened_ - 1];
  const std::string_view bytes(reinterpret_cast<const char*>(message.payload.data()),
                               message.payload.size());
  absl::StatusOr<Record> record = DecodeTrace<Record>(bytes);
  if (!record.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: in the chunk at byte {}: {}", path,
                                                  message.chunk_offset,
                                                  std::string(record.status().message())));
  }
  item->record = *std::move(record);
  item->file = num_opened_ - 1;
  item->offset = message.chunk_offset;
  return CheckOrder(item->record, message.chunk_offset);
}

absl::StatusOr<bool> TraceReader::Decode(const McapMessage& message, TraceItem* item) {
  absl::Status status;
  if (message.encoding == kTraceEncoding && message.topic == kTraceInfoTopic) {
    status = Take<TraceInfo>(message, item);
  } else if (message.encoding == kTraceEncoding && message.topic == kTraceOpeningTopic) {
    status = Take<TraceOpening>(message, item);
  } else if (message.encoding == kTraceEncoding && message.topic == kTraceEndTopic) {
    status = Take<TraceEnd>(message, item);
  } else if (message.encoding == kTraceEncoding && message.topic == kTraceRoundTopic) {
    status = Take<TraceRound>(message, item);
  } else if (message.encoding == kTraceEncoding && message.topic == kTraceDropsTopic) {
    status = Take<TraceDrops>(message, item);
  } else {
    if (!std::exchange(has_foreign_, true)) {
      warnings_.push_back(fmt::format("{}: the channel \"{}\" is not specd's; it is left out",
                                      paths_[num_opened_ - 1], std::string(message.topic)));
    }
    return false;
  }
  if (!status.ok()) return status;
  return true;
}

absl::Status TraceReader::CheckOrder(const TraceRecord& record, uint64_t offset) {
  const std::string& path = paths_[num_opened_ - 1];
  const auto* const info = std::get_if<TraceInfo>(&record);
  if (info == nullptr && info_) return absl::OkStatus();
  if (info == nullptr || info_) {
    return absl::InvalidArgumentError(
        fmt::format("{}: in the chunk at byte {}: {}", path, offset,
                    info == nullptr ? "the first record is no \"info\": this is no trace of specd"
                                    : "a second record \"info\""));
  }
  if (info->version != kTraceVersion) {
    return absl::InvalidArgumentError(
        fmt::format("{}: version = {} of the records; this specd-replay reads version {}", path,
                    info->version, kTraceVersion));
  }
  if (info->vocab_size < 1 || info->vocab_size > uint32_t{kVocabSizeMax}) {
    return absl::InvalidArgumentError(fmt::format("{}: vocab_size = {} is outside 1 .. {}", path,
                                                  info->vocab_size, kVocabSizeMax));
  }
  if (info->row_file.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: row_file = \"{}\" is not the name of a file beside it", path, info->row_file));
  }
  if (session_ && *session_ != info->session) {
    return absl::InvalidArgumentError(
        fmt::format("{}: its session is {}, and that of {} is {}: give the files of one recording",
                    path, info->session, paths_[0], *session_));
  }
  session_ = info->session;
  info_ = *info;
  return absl::OkStatus();
}

std::string TraceReader::Trigger() const {
  if (file_ == nullptr) return {};
  for (const McapMetadata& metadata : file_->metadata()) {
    if (metadata.name != "trigger") continue;
    for (const auto& [name, value] : metadata.values) {
      if (name == "cause") return value;
    }
  }
  return {};
}

absl::StatusOr<const RowFileReader*> TraceReader::RowsOf(const TraceRound& round) {
  if (round.level != TraceLevel::kRows || !HasRecordedRow(round)) return nullptr;
  return Rows();
}

absl::StatusOr<const RowFileReader*> TraceReader::Rows() {
  reads_rows_ = true;
  if (rows_ != nullptr) return rows_.get();
  if (!rows_status_.ok()) return rows_status_;
  if (!info_ || info_->row_file.empty()) {
    return rows_status_ = absl::NotFoundError(
               fmt::format("{}: the trace names no row file", paths_[num_opened_ - 1]));
  }
  absl::StatusOr<RowFileReader> opened =
      RowFileReader::Open(RowPathOf(paths_[num_opened_ - 1], *info_));
  if (!opened.ok()) {
    progress_.Clear();
    return rows_status_ = absl::Status(
               opened.status().code(),
               fmt::format("the rows cannot be read: {}", std::string(opened.status().message())));
  }
  rows_ = std::make_unique<RowFileReader>(*std::move(opened));
  return rows_.get();
}

}  // namespace specd::replay
