#include "daemon/recorder/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/trace/trace_codec.h"
#include "kernels/core/check.h"

namespace specd {

absl::StatusOr<TraceFile> TraceFile::Create(const Paths& paths, const TraceInfo& info,
                                            const CreateFile& create) {
  absl::StatusOr<FileWriter> trace = create(paths.trace);
  if (!trace.ok()) return trace.status();
  absl::StatusOr<McapWriter> mcap = McapWriter::Start(*std::move(trace), {});
  if (!mcap.ok()) return mcap.status();
  std::optional<RowFileWriter> rows;
  if (!paths.rows.empty()) {
    absl::StatusOr<FileWriter> row_file = create(paths.rows);
    if (!row_file.ok()) return row_file.status();
    absl::StatusOr<RowFileWriter> started = RowFileWriter::Start(*std::move(row_file));
    if (!started.ok()) return started.status();
    rows.emplace(*std::move(started));
  }
  TraceFile file(paths, info, *std::move(mcap), std::move(rows));
  if (absl::Status status = file.AddChannels(); !status.ok()) return status;
  return file;
}

absl::Status TraceFile::AddChannels() {
  constexpr std::string_view kTopics[kNumChannels] = {
      kTraceInfoTopic, kTraceOpeningTopic, kTraceEndTopic, kTraceRoundTopic, kTraceDropsTopic};
  for (size_t i = 0; i < kNumChannels; ++i) {
    absl::StatusOr<uint16_t> id =
        mcap_.AddChannel({.topic = kTopics[i], .encoding = kTraceEncoding, .metadata = {}});
    if (!id.ok()) return id.status();
    channel_ids_[i] = *id;
  }
  return absl::OkStatus();
}

template <class Record>
absl::Status TraceFile::Put(Channel channel, int64_t time_ns, const Record& record) {
  if (absl::Status status = PutInfo(time_ns); !status.ok()) return status;
  payload_.clear();
  EncodeTrace(record, &payload_);
  if (payload_.size() > kTraceRecordBytesMax) {
    const size_t size_bytes = std::exchange(payload_, std::string()).size();
    return absl::InvalidArgumentError(fmt::format("its record has {} bytes; at most {} are allowed",
                                                  size_bytes, kTraceRecordBytesMax));
  }
  return mcap_.Write({.channel_id = channel_ids_[channel],
                      .sequence = sequences_[channel]++,
                      .log_time_ns = log_times_.Next(time_ns),
                      .payload = AsBytes(payload_)});
}

absl::Status TraceFile::PutInfo(int64_t first_ns) {
  if (!info_.has_value()) return absl::OkStatus();
  const TraceInfo info = *std::exchange(info_, std::nullopt);
  return Put(kInfo, std::min(first_ns, info.start_ns), info);
}

absl::Status TraceFile::Write(const TraceOpening& opening) {
  return Put(kOpening, opening.time_ns, opening);
}

absl::Status TraceFile::Write(const TraceEnd& end) { return Put(kEnd, end.time_ns, end); }

absl::Status TraceFile::Write(const TraceDrops& drops) { return Put(kDrops, drops.time_ns, drops); }

absl::Status TraceFile::Write(TraceRound* round, std::span<const std::span<const std::byte>> rows) {
  // One entry of the row file for each tensor: the rows of a round are one matrix.
  for (size_t first = 0; first < rows.size();) {
    size_t end = first + 1;
    while (end < rows.size() && round->rows[end].tensor == round->rows[first].tensor) ++end;
    SPECD_CHECK(rows_.has_value());
    absl::StatusOr<uint64_t> offset = rows_->Append(rows.subspan(first, end - first));
    if (!offset.ok()) return offset.status();
    for (; first < end; ++first) {
      round->rows[first].offset = *offset;
      *offset += rows[first].size();
    }
  }
  absl::Status status = Put(kRound, round->times.answered, *round);
  if (status.ok()) ++num_rounds_;
  return status;
}

uint64_t TraceFile::size_bytes() const {
  return mcap_.bytes_written() + mcap_.bytes_pending() +
         (rows_.has_value() ? rows_->size_bytes() : 0);
}

absl::Status TraceFile::Flush() {
  if (info_.has_value()) {
    if (absl::Status status = PutInfo(info_->start_ns); !status.ok()) return status;
  }
  return mcap_.Flush();
}

absl::Status TraceFile::Finish() {
  absl::Status status = Flush();
  if (status.ok()) status = mcap_.Finish();
  if (!rows_.has_value()) return status;
  const absl::Status rows = rows_->Finish();
  return status.ok() ? rows : status;
}

}  // namespace specd
