#include "daemon/trace/mcap_records.h"

#include <fmt/format.h>

#include <cstring>

#include "daemon/trace/file_io.h"
#include "daemon/trace/mcap_format.h"

namespace specd {

absl::StatusOr<bool> McapRecords::Next(McapMessage* message) {
  while (!chunk_.records.empty()) {
    const absl::StatusOr<Record> record = Take();
    if (!record.ok()) return record.status();
    absl::Status status;
    switch (static_cast<McapOpcode>(record->opcode)) {
      case McapOpcode::kMessage:
        status = ReadMessage(*record, message);
        if (!status.ok()) return status;
        return true;
      case McapOpcode::kSchema:  // says what payloads mean; specd writes none
        break;
      case McapOpcode::kChannel:
        status = AddChannel(*record);
        break;
      default:
        // Records of later versions and private ones, from 0x10 on, are ignored.
        if (record->opcode <= static_cast<uint8_t>(McapOpcode::kDataEnd)) {
          status = DamagedFile(path_, record->offset - kMcapRecordHeadSize,
                               fmt::format("expected a Schema, Channel or Message, found a {}",
                                           McapRecordName(record->opcode)));
        }
        break;
    }
    if (!status.ok()) return status;
  }
  return false;
}

absl::StatusOr<McapRecords::Record> McapRecords::Take() {
  std::string_view& records = chunk_.records;
  if (records.size() < kMcapRecordHeadSize) {
    return DamagedFile(
        path_, chunk_.records_offset,
        fmt::format("expected a record of the Chunk, found {} bytes", records.size()));
  }
  Record record;
  record.opcode = static_cast<uint8_t>(records[0]);
  record.offset = chunk_.records_offset + kMcapRecordHeadSize;
  uint64_t size_bytes = 0;
  std::memcpy(&size_bytes, records.data() + 1, sizeof(size_bytes));
  records.remove_prefix(kMcapRecordHeadSize);
  if (size_bytes > records.size()) {
    return DamagedFile(path_, chunk_.records_offset,
                       fmt::format("a {} of {} bytes, but the Chunk has only {} more",
                                   McapRecordName(record.opcode), size_bytes, records.size()));
  }
  record.content = records.substr(0, size_bytes);
  records.remove_prefix(size_bytes);
  chunk_.records_offset = record.offset + size_bytes;
  return record;
}

absl::Status McapRecords::AddChannel(const Record& record) {
  McapFields fields(record.content, record.offset, path_);
  const uint16_t id = fields.U16("the id of a channel");
  fields.U16("the schema_id of a channel");
  const std::string_view topic = fields.String("the topic of a channel");
  const std::string_view encoding = fields.String("the encoding of a channel");
  fields.Map("the metadata of a channel");
  if (!fields.status().ok()) return fields.status();
  if (const auto known = channels_.find(id); known != channels_.end()) {
    if (known->second.record == record.content) return absl::OkStatus();
    return DamagedFile(path_, record.offset, fmt::format("channel {} was another one before", id));
  }
  if (absl::Status status = Keep(record.content.size(), record.offset); !status.ok()) {
    return status;
  }
  channels_.emplace(id, Channel{.record = std::string(record.content),
                                .topic = std::string(topic),
                                .encoding = std::string(encoding)});
  return absl::OkStatus();
}

absl::Status McapRecords::ReadMessage(const Record& record, McapMessage* message) const {
  McapFields fields(record.content, record.offset, path_);
  const uint16_t channel_id = fields.U16("the channel_id of a message");
  const uint32_t sequence = fields.U32("the sequence of a message");
  const uint64_t log_time_ns = fields.U64("the log_time of a message");
  fields.U64("the publish_time of a message");
  if (!fields.status().ok()) return fields.status();
  const auto channel = channels_.find(channel_id);
  if (channel == channels_.end()) {
    return DamagedFile(
        path_, record.offset,
        fmt::format("a message belongs to channel {}, which is not there", channel_id));
  }
  *message = {.topic = channel->second.topic,
              .encoding = channel->second.encoding,
              .channel_id = channel_id,
              .sequence = sequence,
              .log_time_ns = log_time_ns,
              .payload = AsBytes(fields.Rest()),
              .chunk_offset = chunk_.offset,
              .file_size_bytes = file_size_bytes_};
  return absl::OkStatus();
}

absl::Status McapRecords::Keep(uint64_t size_bytes, uint64_t offset) {
  if (size_bytes > kMcapKeptSizeMax - kept_size_bytes_) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: byte {}: names and metadata have more than {} bytes together; "
                    "this reader keeps no more",
                    path_, offset, kMcapKeptSizeMax));
  }
  kept_size_bytes_ += size_bytes;
  return absl::OkStatus();
}

}  // namespace specd
