#include "daemon/trace/mcap_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/base/version.h"
#include "daemon/trace/crc32.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

// Everything of a Chunk record before its records: the record's head, two times, size, checksum,
// an empty name of the compression, size again.
constexpr size_t kChunkHeadSize = kMcapRecordHeadSize + 8 + 8 + 8 + 4 + 4 + 8;

absl::Status CheckText(std::string_view field, std::string_view text) {
  if (IsMcapText(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} is not UTF-8; MCAP takes only UTF-8", field));
}

absl::Status CheckMap(std::string_view field, const McapMap& values) {
  if (values.size() > kMcapMapSizeMax) {
    return absl::InvalidArgumentError(fmt::format("{} has {} entries; at most {} are allowed",
                                                  field, values.size(), kMcapMapSizeMax));
  }
  for (const auto& [key, value] : values) {
    for (const std::string_view text : {std::string_view(key), std::string_view(value)}) {
      if (absl::Status status = CheckText(field, text); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSize(std::string_view field, uint64_t size_bytes, uint64_t size_max_bytes) {
  if (size_bytes <= size_max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} has {} bytes; at most {} are allowed", field, size_bytes, size_max_bytes));
}

absl::Status FirstError(std::initializer_list<absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

void McapWriter::TimeRange::Extend(uint64_t time_ns, bool is_first) {
  first_ns = is_first ? time_ns : std::min(first_ns, time_ns);
  last_ns = is_first ? time_ns : std::max(last_ns, time_ns);
}

absl::StatusOr<McapWriter> McapWriter::Create(const std::string& path,
                                              const McapWriterOptions& options) {
  absl::StatusOr<FileWriter> out = FileWriter::Create(path);
  if (!out.ok()) return out.status();
  return Start(*std::move(out), options);
}

absl::StatusOr<McapWriter> McapWriter::Start(FileWriter out, const McapWriterOptions& options) {
  if (options.chunk_size_bytes == 0 || options.chunk_size_bytes > kMcapChunkSizeMax) {
    return absl::InvalidArgumentError(fmt::format("chunk_size_bytes = {}: allowed are 1 to {}",
                                                  options.chunk_size_bytes, kMcapChunkSizeMax));
  }
  McapWriter writer(std::move(out), options.chunk_size_bytes);
  std::string head(kMcapMagic);
  McapRecord(&head, McapOpcode::kHeader)
      .SizedBytes(kMcapProfile)
      .SizedBytes(fmt::format("specd {}", kVersion));
  if (absl::Status status = writer.WriteData(head); !status.ok()) return status;
  writer.BeginChunk();
  return writer;
}

absl::StatusOr<uint16_t> McapWriter::AddChannel(const McapChannel& channel) {
  if (!out_.status().ok()) return out_.status();
  const absl::Status checked = FirstError({CheckText("topic", channel.topic),
                                           CheckText("encoding of the channel", channel.encoding),
                                           CheckMap("metadata of the channel", channel.metadata)});
  if (!checked.ok()) return checked;
  if (channels_.size() == UINT16_MAX) {
    return absl::ResourceExhaustedError("65535 channels are there");
  }
  const uint16_t id = channels_.size() + 1;
  std::string record;
  McapRecord(&record, McapOpcode::kChannel)
      .U16(id)
      .U16(0)  // no schema
      .SizedBytes(channel.topic)
      .SizedBytes(channel.encoding)
      .Map(channel.metadata);
  if (absl::Status status = AddToChunk(record); !status.ok()) return status;
  channel_records_ += record;
  channels_.emplace_back();
  return id;
}

absl::Status McapWriter::Write(const Message& message) {
  if (!out_.status().ok()) return out_.status();
  if (message.channel_id == 0 || message.channel_id > channels_.size()) {
    return absl::InvalidArgumentError(fmt::format("channel_id = {}: the file has channels 1 to {}",
                                                  message.channel_id, channels_.size()));
  }
  constexpr size_t kHeadSize = kMcapRecordHeadSize + kMcapMessageHeadSize;
  if (absl::Status status =
          CheckSize("payload", message.payload.size(), kMcapChunkSizeMax - kHeadSize);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = MakeRoom(kHeadSize + message.payload.size()); !status.ok()) {
    return status;
  }
  ChannelState& channel = channels_[message.channel_id - 1u];
  AppendU64(&channel.chunk_index, message.log_time_ns);
  AppendU64(&channel.chunk_index, chunk_.size() - kChunkHeadSize);
  McapRecord(&chunk_, McapOpcode::kMessage)
      .U16(message.channel_id)
      .U32(message.sequence)
      .U64(message.log_time_ns)
      .U64(message.log_time_ns)  // the time of publishing: nothing is published here
      .Bytes({reinterpret_cast<const char*>(message.payload.data()), message.payload.size()});
  chunk_times_.Extend(message.log_time_ns, num_chunk_messages_ == 0);
  times_.Extend(message.log_time_ns, num_messages_ == 0);
  ++num_chunk_messages_;
  ++num_messages_;
  ++channel.num_messages;
  return absl::OkStatus();
}

absl::Status McapWriter::WriteMetadata(std::string_view name, const McapMap& values) {
  if (!out_.status().ok()) return out_.status();
  const absl::Status checked =
      FirstError({CheckText("name of the metadata", name), CheckMap("metadata", values)});
  if (!checked.ok()) return checked;
  std::string record;
  McapRecord(&record, McapOpcode::kMetadata).SizedBytes(name).Map(values);
  if (absl::Status status = Keep(McapKeptSize(record.size(), values)); !status.ok()) return status;
  if (absl::Status status = CloseChunk(); !status.ok()) return status;
  McapRecord(&metadata_index_records_, McapOpcode::kMetadataIndex)
      .U64(out_.offset())
      .U64(record.size())
      .SizedBytes(name);
  ++num_metadata_;
  return WriteData(record);
}

absl::Status McapWriter::Flush() {
  if (!out_.status().ok()) return out_.status();
  return CloseChunk();
}

absl::Status McapWriter::Finish() {
  if (absl::Status status = Flush(); !status.ok()) return status;
  std::string end;
  McapRecord(&end, McapOpcode::kDataEnd).U32(data_crc_);
  end += EncodeSummary(out_.offset() + end.size());
  end += kMcapMagic;
  if (absl::Status status = out_.Write(AsBytes(end)); !status.ok()) return status;
  return out_.Close();
}

uint64_t McapWriter::bytes_pending() const {
  return chunk_.size() < kChunkHeadSize ? 0 : chunk_.size() - kChunkHeadSize;
}

uint64_t McapWriter::num_pending(uint16_t channel_id) const {
  SPECD_CHECK(channel_id >= 1 && channel_id <= channels_.size());
  const ChannelState& channel = channels_[channel_id - 1u];
  return channel.num_messages - channel.num_in_whole_chunks;
}

absl::Status McapWriter::AddToChunk(std::string_view record) {
  if (absl::Status status = Keep(record.size()); !status.ok()) return status;
  if (absl::Status status = MakeRoom(record.size()); !status.ok()) return status;
  chunk_ += record;
  return absl::OkStatus();
}

absl::Status McapWriter::Keep(uint64_t size_bytes) {
  if (size_bytes > kMcapKeptSizeMax - kept_size_bytes_) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: {} bytes more of names, schemas and metadata; {} of at most {} are there",
                    out_.path(), size_bytes, kept_size_bytes_, kMcapKeptSizeMax));
  }
  kept_size_bytes_ += size_bytes;
  return absl::OkStatus();
}

absl::Status McapWriter::MakeRoom(uint64_t size_bytes) {
  return bytes_pending() + size_bytes > chunk_size_bytes_ ? CloseChunk() : absl::OkStatus();
}

void McapWriter::BeginChunk() {
  chunk_.assign(kChunkHeadSize, '\0');
  num_chunk_messages_ = 0;
  chunk_times_ = {};
  for (ChannelState& channel : channels_) channel.chunk_index.clear();
}

absl::Status McapWriter::CloseChunk() {
  const size_t size_bytes = chunk_.size() - kChunkHeadSize;
  if (size_bytes == 0) return absl::OkStatus();
  const uint32_t crc = Crc32(std::string_view(chunk_).substr(kChunkHeadSize));
  std::string head;
  McapRecord(&head, McapOpcode::kChunk)
      .U64(chunk_times_.first_ns)
      .U64(chunk_times_.last_ns)
      .U64(size_bytes)
      .U32(crc)
      .SizedBytes("")  // no compression
      .U64(size_bytes);
  SPECD_CHECK(head.size() == kChunkHeadSize);
  PutU64(head.data() + 1, chunk_.size() - kMcapRecordHeadSize);
  chunk_.replace(0, kChunkHeadSize, head);

  // The index follows in the same write. It is small: 16 bytes for each message.
  const uint64_t chunk_offset = out_.offset();
  const size_t chunk_size_bytes = chunk_.size();
  std::string index_offsets;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].chunk_index.empty()) continue;
    const uint16_t id = i + 1;
    AppendU16(&index_offsets, id);
    AppendU64(&index_offsets, chunk_offset + chunk_.size());
    McapRecord(&chunk_, McapOpcode::kMessageIndex).U16(id).SizedBytes(channels_[i].chunk_index);
  }
  McapRecord(&chunk_index_records_, McapOpcode::kChunkIndex)
      .U64(chunk_times_.first_ns)
      .U64(chunk_times_.last_ns)
      .U64(chunk_offset)
      .U64(chunk_size_bytes)
      .SizedBytes(index_offsets)
      .U64(chunk_.size() - chunk_size_bytes)
      .SizedBytes("")
      .U64(size_bytes)
      .U64(size_bytes);
  ++num_chunks_;

  const std::string_view index = std::string_view(chunk_).substr(chunk_size_bytes);
  data_crc_ = JoinCrc32(data_crc_, Crc32(head), head.size());
  data_crc_ = JoinCrc32(data_crc_, crc, size_bytes);
  data_crc_ = JoinCrc32(data_crc_, Crc32(index), index.size());
  const absl::Status status = out_.Write(AsBytes(chunk_));
  if (status.ok()) {
    for (ChannelState& channel : channels_) channel.num_in_whole_chunks = channel.num_messages;
  }
  BeginChunk();
  return status;
}

absl::Status McapWriter::WriteData(std::string_view bytes) {
  data_crc_ = JoinCrc32(data_crc_, Crc32(bytes), bytes.size());
  return out_.Write(AsBytes(bytes));
}

std::string McapWriter::EncodeStatistics() const {
  std::string counts;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].num_messages == 0) continue;
    AppendU16(&counts, static_cast<uint16_t>(i + 1));
    AppendU64(&counts, channels_[i].num_messages);
  }
  std::string record;
  McapRecord(&record, McapOpcode::kStatistics)
      .U64(num_messages_)
      .U16(0)  // schemas
      .U32(static_cast<uint32_t>(channels_.size()))
      .U32(0)  // attachments
      .U32(num_metadata_)
      .U32(num_chunks_)
      .U64(times_.first_ns)
      .U64(times_.last_ns)
      .SizedBytes(counts);
  return record;
}

std::string McapWriter::EncodeSummary(uint64_t summary_start) const {
  const std::string statistics = EncodeStatistics();
  const std::pair<McapOpcode, std::string_view> groups[] = {
      {McapOpcode::kChannel, channel_records_},
      {McapOpcode::kChunkIndex, chunk_index_records_},
      {McapOpcode::kMetadataIndex, metadata_index_records_},
      {McapOpcode::kStatistics, statistics}};
  std::string summary;
  std::string offsets;
  for (const auto& [opcode, records] : groups) {
    if (records.empty()) continue;
    McapRecord(&offsets, McapOpcode::kSummaryOffset)
        .U8(static_cast<uint8_t>(opcode))
        .U64(summary_start + summary.size())
        .U64(records.size());
    summary += records;
  }
  const uint64_t offsets_start = summary_start + summary.size();
  summary += offsets;

  std::string footer;
  McapRecord(&footer, McapOpcode::kFooter).U64(summary_start).U64(offsets_start).U32(0);
  // The checksum covers everything before its own field.
  summary.append(footer, 0, footer.size() - sizeof(uint32_t));
  AppendU32(&summary, Crc32(summary));
  return summary;
}

}  // namespace specd
