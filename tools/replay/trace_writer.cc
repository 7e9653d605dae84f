#include "tools/replay/trace_writer.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "daemon/trace/trace_codec.h"

namespace specd::replay {
namespace {

constexpr std::string_view kTopics[] = {kTraceInfoTopic, kTraceOpeningTopic, kTraceEndTopic,
                                        kTraceRoundTopic, kTraceDropsTopic};
enum Channel : size_t { kInfo, kOpening, kEnd, kRound, kDrops };

}  // namespace

std::string RowPathBeside(const std::string& trace_path) {
  return std::filesystem::path(trace_path).replace_extension(".rows").string();
}

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path,
                                                                 bool with_rows) {
  TemporaryName trace_name(path);
  TemporaryName row_name(RowPathBeside(path));
  absl::StatusOr<McapWriter> trace = McapWriter::Create(trace_name.temporary(), {});
  if (!trace.ok()) return trace.status();
  std::unique_ptr<TraceWriter> writer(
      new TraceWriter(std::move(trace_name), std::move(row_name), *std::move(trace)));
  if (with_rows) {
    absl::StatusOr<RowFileWriter> rows = RowFileWriter::Create(writer->row_name_.temporary());
    if (!rows.ok()) return rows.status();
    writer->rows_.emplace(*std::move(rows));
  }
  if (absl::Status status = writer->AddChannels(); !status.ok()) return status;
  return writer;
}

absl::Status TraceWriter::AddChannels() {
  for (size_t i = 0; i < kNumChannels; ++i) {
    const absl::StatusOr<uint16_t> id =
        trace_.AddChannel({.topic = kTopics[i], .encoding = kTraceEncoding, .metadata = {}});
    if (!id.ok()) return id.status();
    channels_[i] = *id;
  }
  return absl::OkStatus();
}

template <class Record>
absl::Status TraceWriter::Put(size_t channel, int64_t time_ns, const Record& record) {
  if (absl::Status status = PutInfo(time_ns); !status.ok()) return status;
  std::string bytes;
  EncodeTrace(record, &bytes);
  return trace_.Write({.channel_id = channels_[channel],
                       .sequence = counts_[channel]++,
                       .log_time_ns = log_times_.Next(time_ns),
                       .payload = AsBytes(bytes)});
}

absl::Status TraceWriter::PutInfo(int64_t first_ns) {
  if (!info_.has_value()) return absl::OkStatus();
  const TraceInfo info = *std::exchange(info_, std::nullopt);
  return Put(kInfo, std::min(first_ns, info.start_ns), info);
}

void TraceWriter::Write(TraceInfo info) {
  info.row_file =
      rows_ ? std::filesystem::path(row_name_.path()).filename().string() : std::string();
  info_ = std::move(info);
}
absl::Status TraceWriter::Write(const TraceOpening& opening) {
  return Put(kOpening, opening.time_ns, opening);
}
absl::Status TraceWriter::Write(const TraceEnd& end) { return Put(kEnd, end.time_ns, end); }
absl::Status TraceWriter::Write(const TraceRound& round) {
  return Put(kRound, round.times.answered, round);
}
absl::Status TraceWriter::Write(const TraceDrops& drops) {
  return Put(kDrops, drops.time_ns, drops);
}

absl::StatusOr<uint64_t> TraceWriter::WriteRows(std::span<const std::span<const std::byte>> rows) {
  return rows_->Append(rows);
}

absl::Status TraceWriter::Commit() {
  if (info_.has_value()) {
    if (absl::Status status = PutInfo(info_->start_ns); !status.ok()) return status;
  }
  if (absl::Status status = trace_.Finish(); !status.ok()) return status;
  if (rows_) {
    // The rows first: a trace whose rows are missing would be worse than rows without a trace.
    if (absl::Status status = rows_->Finish(); !status.ok()) return status;
    if (absl::Status status = row_name_.Commit(); !status.ok()) return status;
  }
  return trace_name_.Commit();
}

}  // namespace specd::replay
