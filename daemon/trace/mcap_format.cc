#include "daemon/trace/mcap_format.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "daemon/trace/file_io.h"
#include "kernels/core/check.h"
#include "simdjson.h"

namespace specd {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
void AppendNumber(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string McapRecordName(uint8_t opcode) {
  switch (static_cast<McapOpcode>(opcode)) {
    case McapOpcode::kHeader:
      return "Header";
    case McapOpcode::kFooter:
      return "Footer";
    case McapOpcode::kSchema:
      return "Schema";
    case McapOpcode::kChannel:
      return "Channel";
    case McapOpcode::kMessage:
      return "Message";
    case McapOpcode::kChunk:
      return "Chunk";
    case McapOpcode::kMessageIndex:
      return "MessageIndex";
    case McapOpcode::kChunkIndex:
      return "ChunkIndex";
    case McapOpcode::kAttachment:
      return "Attachment";
    case McapOpcode::kAttachmentIndex:
      return "AttachmentIndex";
    case McapOpcode::kStatistics:
      return "Statistics";
    case McapOpcode::kMetadata:
      return "Metadata";
    case McapOpcode::kMetadataIndex:
      return "MetadataIndex";
    case McapOpcode::kSummaryOffset:
      return "SummaryOffset";
    case McapOpcode::kDataEnd:
      return "DataEnd";
  }
  return fmt::format("record 0x{:02x}", opcode);
}

bool IsMcapText(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

void AppendU16(std::string* out, uint16_t value) { AppendNumber(out, value); }
void AppendU32(std::string* out, uint32_t value) { AppendNumber(out, value); }
void AppendU64(std::string* out, uint64_t value) { AppendNumber(out, value); }
void PutU64(char* out, uint64_t value) { std::memcpy(out, &value, sizeof(value)); }

McapRecord::McapRecord(std::string* out, McapOpcode opcode) : out_(out), begin_(out->size()) {
  out_->push_back(static_cast<char>(opcode));
  AppendU64(out_, 0);  // the destructor knows it
}

McapRecord::~McapRecord() {
  PutU64(out_->data() + begin_ + 1, out_->size() - begin_ - kMcapRecordHeadSize);
}

McapRecord& McapRecord::U8(uint8_t value) {
  out_->push_back(static_cast<char>(value));
  return *this;
}

McapRecord& McapRecord::U16(uint16_t value) {
  AppendU16(out_, value);
  return *this;
}

McapRecord& McapRecord::U32(uint32_t value) {
  AppendU32(out_, value);
  return *this;
}

McapRecord& McapRecord::U64(uint64_t value) {
  AppendU64(out_, value);
  return *this;
}

McapRecord& McapRecord::Bytes(std::string_view bytes) {
  out_->append(bytes);
  return *this;
}

McapRecord& McapRecord::SizedBytes(std::string_view bytes) {
  SPECD_CHECK(bytes.size() <= UINT32_MAX);
  return U32(static_cast<uint32_t>(bytes.size())).Bytes(bytes);
}

McapRecord& McapRecord::Map(const McapMap& values) {
  const size_t size_place = out_->size();
  U32(0);  // known below
  for (const auto& [key, value] : values) SizedBytes(key).SizedBytes(value);
  const size_t size_bytes = out_->size() - size_place - sizeof(uint32_t);
  SPECD_CHECK(size_bytes <= UINT32_MAX);
  const uint32_t size = size_bytes;
  std::memcpy(out_->data() + size_place, &size, sizeof(size));
  return *this;
}

bool McapFields::Need(std::string_view field, uint64_t size_bytes) {
  if (!status_.ok()) return false;
  const size_t left = content_.size() - position_;
  if (size_bytes <= left) return true;
  status_ = DamagedFile(
      path_, offset_ + position_,
      fmt::format("{} takes {} bytes, but the record has only {} more", field, size_bytes, left));
  return false;
}

uint64_t McapFields::Number(std::string_view field, size_t size_bytes) {
  uint64_t value = 0;
  if (!Need(field, size_bytes)) return 0;
  std::memcpy(&value, content_.data() + position_, size_bytes);
  position_ += size_bytes;
  return value;
}

uint16_t McapFields::U16(std::string_view field) {
  return static_cast<uint16_t>(Number(field, sizeof(uint16_t)));
}

uint32_t McapFields::U32(std::string_view field) {
  return static_cast<uint32_t>(Number(field, sizeof(uint32_t)));
}

uint64_t McapFields::U64(std::string_view field) { return Number(field, sizeof(uint64_t)); }

std::string_view McapFields::SizedBytes(std::string_view field) { return Bytes(field, U32(field)); }

std::string_view McapFields::Bytes(std::string_view field, uint64_t size_bytes) {
  if (!Need(field, size_bytes)) return {};
  const std::string_view bytes = content_.substr(position_, size_bytes);
  position_ += bytes.size();
  return bytes;
}

std::string_view McapFields::String(std::string_view field) {
  const std::string_view text = SizedBytes(field);
  if (status_.ok() && !IsMcapText(text)) {
    status_ = DamagedFile(path_, offset_ + position_ - text.size(),
                          fmt::format("{} is not UTF-8", field));
    return {};
  }
  return text;
}

McapMap McapFields::Map(std::string_view field) {
  const uint64_t begin = offset_ + position_ + sizeof(uint32_t);
  const std::string_view entries = SizedBytes(field);
  McapMap values;
  if (!status_.ok()) return values;
  McapFields fields(entries, begin, path_);
  while (!fields.Rest().empty()) {
    const std::string_view key = fields.String(field);
    const std::string_view value = fields.String(field);
    if (!fields.status().ok()) {
      status_ = fields.status();
      return {};
    }
    if (values.size() == kMcapMapSizeMax) {
      status_ = absl::ResourceExhaustedError(
          fmt::format("{}: byte {}: {} has more than {} entries; this reader takes no more", path_,
                      begin, field, kMcapMapSizeMax));
      return {};
    }
    values.emplace_back(key, value);
  }
  return values;
}

}  // namespace specd
