#include "daemon/trace/mcap_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "daemon/trace/crc32.h"

namespace specd {
namespace {

// The content of a Chunk before the name of its compression: two times, size, checksum, size of the
// name.
constexpr size_t kChunkPrefixSize = 8 + 8 + 8 + 4 + 4;
// The same, and the size of the records.
constexpr size_t kChunkHeadSize = kChunkPrefixSize + 8;
// A record that is skipped passes through memory in pieces, for the checksum.
constexpr size_t kPieceSize = size_t{64} << 10;
// The end of a finished file: the footer and the magic.
constexpr uint64_t kFileEndSize = kMcapRecordHeadSize + kMcapFooterSize + kMcapMagic.size();

bool MayStandInTrace(McapOpcode opcode) {
  return opcode == McapOpcode::kChunk || opcode == McapOpcode::kMessageIndex ||
         opcode == McapOpcode::kMetadata || opcode == McapOpcode::kDataEnd;
}

std::string HexOf(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<uint8_t>(byte));
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

absl::StatusOr<McapReader> McapReader::Open(const std::string& path,
                                            const McapReaderOptions& options) {
  absl::StatusOr<FileReader> file = FileReader::Open(path);
  if (!file.ok()) return file.status();
  return Start(*std::move(file), options);
}

absl::StatusOr<McapReader> McapReader::Start(FileReader file, const McapReaderOptions& options) {
  McapReader reader(std::move(file), options);
  if (absl::Status status = reader.ReadBeginning(); !status.ok()) return status;
  return reader;
}

absl::Status McapReader::ReadBeginning() {
  std::string magic(std::min<uint64_t>(kMcapMagic.size(), file_.size_bytes()), '\0');
  if (absl::Status status = ReadInto(0, magic); !status.ok()) return status;
  if (magic != kMcapMagic.substr(0, magic.size())) {
    return Damaged(0, fmt::format("expected {}, the beginning of an MCAP file, found {}",
                                  HexOf(kMcapMagic), HexOf(magic)));
  }
  if (magic.size() < kMcapMagic.size()) return Torn("the first 8 bytes");
  offset_ = magic.size();
  crc_ = Crc32(magic);

  if (file_.size_bytes() >= kMcapMagic.size() + kFileEndSize) {
    std::string end(kFileEndSize, '\0');
    if (absl::Status status = ReadInto(file_.size_bytes() - end.size(), end); !status.ok()) {
      return status;
    }
    has_footer_ = end[0] == static_cast<char>(McapOpcode::kFooter) && end.ends_with(kMcapMagic);
  }
  const absl::StatusOr<RecordHead> head = ReadHead();
  if (!head.ok()) return head.status();
  if (head->opcode != static_cast<uint8_t>(McapOpcode::kHeader)) {
    return Damaged(head->offset, "expected a Header, found " + McapRecordName(head->opcode));
  }
  if (absl::Status status = LoadRecord(*head); !status.ok()) return status;
  McapFields fields(Content(), head->content_offset(), file_.path());
  profile_ = fields.String("the profile of the Header");
  library_ = fields.String("the library of the Header");
  is_trace_ = profile_ == kMcapProfile;
  return fields.status();
}

absl::StatusOr<bool> McapReader::Next(McapMessage* message) {
  if (!status_.ok()) return status_;
  absl::StatusOr<bool> found = FindMessage(message);
  if (!found.ok()) status_ = found.status();
  return found;
}

absl::StatusOr<bool> McapReader::FindMessage(McapMessage* message) {
  while (true) {
    const absl::StatusOr<bool> found = records_.Next(message);
    if (!found.ok() || *found) return found;
    if (section_ == Section::kEnd) return false;
    if (absl::Status status = ReadRecord(); !status.ok()) return status;
  }
}

absl::Status McapReader::ReadRecord() {
  const absl::StatusOr<RecordHead> head = ReadHead();
  if (!head.ok()) return head.status();
  if (head->opcode == static_cast<uint8_t>(McapOpcode::kFooter)) return ReadFooter(*head);
  return section_ == Section::kData ? ReadDataRecord(*head) : ReadSummaryRecord(*head);
}

absl::StatusOr<McapReader::RecordHead> McapReader::ReadHead() {
  const uint64_t left = file_.size_bytes() - offset_;
  if (left < kMcapRecordHeadSize) {
    return Torn(section_ == Section::kData ? "the data section" : "the summary");
  }
  char bytes[kMcapRecordHeadSize];
  if (absl::Status status = ReadInto(offset_, bytes); !status.ok()) return status;
  RecordHead head = {.opcode = static_cast<uint8_t>(bytes[0]), .offset = offset_};
  std::memcpy(&head.size_bytes, bytes + 1, sizeof(head.size_bytes));
  const std::string name = McapRecordName(head.opcode);
  // A file system that lost its power may have left zeros where the writer wrote.
  if (head.opcode == 0) {
    return has_footer_ ? Damaged(offset_, "expected the opcode of a record, found 0x00")
                       : TornFile(file_.path(), offset_, "a record, whose place has zeros");
  }
  if (head.size_bytes > left - kMcapRecordHeadSize) {
    if (!has_footer_) return Torn(fmt::format("a {} of {} bytes", name, head.size_bytes));
    return Damaged(offset_, fmt::format("a {} of {} bytes, but only {} bytes follow", name,
                                        head.size_bytes, left - kMcapRecordHeadSize));
  }
  return head;
}

absl::Status McapReader::ReadDataRecord(const RecordHead& head) {
  if (is_trace_ && !MayStandInTrace(static_cast<McapOpcode>(head.opcode))) {
    return Damaged(head.offset,
                   fmt::format("expected a Chunk, MessageIndex, Metadata or DataEnd, as specd "
                               "writes them, found {}",
                               McapRecordName(head.opcode)));
  }
  switch (static_cast<McapOpcode>(head.opcode)) {
    case McapOpcode::kChunk:
      return ReadChunk(head);
    case McapOpcode::kMetadata:
      return ReadMetadata(head);
    case McapOpcode::kDataEnd:
      return ReadDataEnd(head);
    case McapOpcode::kSchema:
    case McapOpcode::kChannel:
    case McapOpcode::kMessage:
      // The record is taken as one of a chunk is.
      if (absl::Status status = LoadRecord(head); !status.ok()) return status;
      records_.Load({.records = buffer_, .records_offset = head.offset, .offset = head.offset});
      return absl::OkStatus();
    case McapOpcode::kHeader:
    case McapOpcode::kFooter:
    case McapOpcode::kChunkIndex:
    case McapOpcode::kAttachmentIndex:
    case McapOpcode::kStatistics:
    case McapOpcode::kMetadataIndex:
    case McapOpcode::kSummaryOffset:
      return Damaged(head.offset,
                     "expected a record of the data section, found " + McapRecordName(head.opcode));
    case McapOpcode::kMessageIndex:
      if (absl::Status status = CheckMessageIndex(head); !status.ok()) return status;
      break;
    case McapOpcode::kAttachment:
      break;
  }
  return SkipRecord(head);  // private records and those of later versions too
}

absl::Status McapReader::ReadChunk(const RecordHead& head) {
  char prefix[kChunkPrefixSize];
  if (head.size_bytes < sizeof(prefix)) {
    return Damaged(head.offset, fmt::format("a Chunk of {} bytes, expected {} or more",
                                            head.size_bytes, sizeof(prefix)));
  }
  if (absl::Status status = ReadInto(head.content_offset(), prefix); !status.ok()) return status;
  uint32_t name_size_bytes = 0;
  std::memcpy(&name_size_bytes, prefix + sizeof(prefix) - 4, sizeof(name_size_bytes));
  if (name_size_bytes > 0) return RefuseCompression(head, name_size_bytes);
  if (head.size_bytes > kChunkHeadSize + options_.chunk_size_max_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: byte {}: a Chunk of {} bytes; this reader takes at most {}", file_.path(),
                    head.offset, head.size_bytes, kChunkHeadSize + options_.chunk_size_max_bytes));
  }
  if (absl::Status status = LoadBytes(head); !status.ok()) return status;

  McapFields fields(Content(), head.content_offset(), file_.path());
  fields.U64("the message_start_time of a Chunk");
  fields.U64("the message_end_time of a Chunk");
  const uint64_t uncompressed_size = fields.U64("the uncompressed_size of a Chunk");
  const uint32_t expected_crc = fields.U32("the uncompressed_crc of a Chunk");
  fields.SizedBytes("the compression of a Chunk");
  const uint64_t records_size = fields.U64("the size of the records of a Chunk");
  const std::string_view records = fields.Bytes("the records of a Chunk", records_size);
  if (absl::Status status = CheckEnd(fields, head); !status.ok()) return status;
  if (records_size != uncompressed_size) {
    return Damaged(head.offset, fmt::format("uncompressed_size = {}, but the records have {} bytes",
                                            uncompressed_size, records_size));
  }
  const uint32_t crc = Crc32(records);
  if (expected_crc != 0 && crc != expected_crc) {
    return Damaged(head.offset, fmt::format("the records of the Chunk have the checksum {:08x}, "
                                            "expected {:08x}",
                                            crc, expected_crc));
  }
  // The bytes before the records, the records, and fields of a later version.
  const size_t before_size = records.data() - buffer_.data();
  const std::string_view after = fields.Rest();
  AddToCrc(Crc32(std::string_view(buffer_).substr(0, before_size)), before_size);
  AddToCrc(crc, records.size());
  AddToCrc(Crc32(after), after.size());
  records_.Load(
      {.records = records, .records_offset = head.offset + before_size, .offset = head.offset});
  return absl::OkStatus();
}

absl::Status McapReader::RefuseCompression(const RecordHead& head, uint32_t name_size_bytes) {
  // Names of compressions are short; the rest of a hostile one is not needed.
  const uint64_t left = head.size_bytes - kChunkPrefixSize;
  if (name_size_bytes > left) {
    return Damaged(head.offset, fmt::format("the name of the compression has {} bytes, but only "
                                            "{} follow",
                                            name_size_bytes, left));
  }
  std::string name(std::min<uint64_t>(name_size_bytes, 32), '\0');
  if (absl::Status status = ReadInto(head.content_offset() + kChunkPrefixSize, name);
      !status.ok()) {
    return status;
  }
  for (char& letter : name) letter = letter >= ' ' && letter <= '~' ? letter : '?';
  return absl::UnimplementedError(
      fmt::format("{}: byte {}: compression = {}: this reader takes uncompressed chunks only; "
                  "write the file again without compression (mcap decompress)",
                  file_.path(), head.offset, name));
}

absl::Status McapReader::ReadMetadata(const RecordHead& head) {
  if (absl::Status status = LoadRecord(head); !status.ok()) return status;
  McapFields fields(Content(), head.content_offset(), file_.path());
  McapMetadata metadata;
  metadata.name = fields.String("the name of a Metadata record");
  metadata.values = fields.Map("the map of a Metadata record");
  if (absl::Status status = CheckEnd(fields, head); !status.ok()) return status;
  if (absl::Status status =
          records_.Keep(McapKeptSize(buffer_.size(), metadata.values), head.offset);
      !status.ok()) {
    return status;
  }
  metadata_.push_back(std::move(metadata));
  return absl::OkStatus();
}

absl::Status McapReader::CheckMessageIndex(const RecordHead& head) {
  if (!is_trace_) return absl::OkStatus();
  // The channel's id, and the size of what follows.
  char prefix[2 + 4] = {};
  uint32_t size_bytes = 0;
  if (head.size_bytes >= sizeof(prefix)) {
    if (absl::Status status = ReadInto(head.content_offset(), prefix); !status.ok()) return status;
    std::memcpy(&size_bytes, prefix + 2, sizeof(size_bytes));
    if (size_bytes == head.size_bytes - sizeof(prefix)) return absl::OkStatus();
  }
  return Damaged(head.offset, fmt::format("a MessageIndex of {} bytes, expected {}",
                                          head.size_bytes, sizeof(prefix) + size_bytes));
}

absl::Status McapReader::CheckEnd(const McapFields& fields, const RecordHead& head) const {
  if (!fields.status().ok() || !is_trace_ || fields.Rest().empty()) return fields.status();
  return Damaged(head.offset, fmt::format("a {} with {} bytes after its last field",
                                          McapRecordName(head.opcode), fields.Rest().size()));
}

absl::Status McapReader::ReadDataEnd(const RecordHead& head) {
  const uint32_t crc = crc_;  // of the bytes before this record
  if (absl::Status status = LoadRecord(head); !status.ok()) return status;
  McapFields fields(Content(), head.content_offset(), file_.path());
  const uint32_t expected_crc = fields.U32("the data_section_crc");
  if (!fields.status().ok()) return fields.status();
  if (expected_crc != 0 && crc != expected_crc) {
    return Damaged(head.offset,
                   fmt::format("the bytes before have the checksum {:08x}, expected {:08x}: a "
                               "record outside the chunks is damaged",
                               crc, expected_crc));
  }
  section_ = Section::kSummary;
  summary_start_ = offset_;
  crc_ = 0;
  return absl::OkStatus();
}

absl::Status McapReader::ReadSummaryRecord(const RecordHead& head) {
  switch (static_cast<McapOpcode>(head.opcode)) {
    case McapOpcode::kHeader:
    case McapOpcode::kMessage:
    case McapOpcode::kChunk:
    case McapOpcode::kMessageIndex:
    case McapOpcode::kAttachment:
    case McapOpcode::kMetadata:
    case McapOpcode::kDataEnd:
      return Damaged(head.offset,
                     "expected a record of the summary, found " + McapRecordName(head.opcode));
    default:
      return SkipRecord(head);  // it repeats what the data section has
  }
}

absl::Status McapReader::ReadFooter(const RecordHead& head) {
  if (head.size_bytes != kMcapFooterSize) {
    return Damaged(head.offset, fmt::format("a Footer of {} bytes, expected {}", head.size_bytes,
                                            kMcapFooterSize));
  }
  const uint32_t summary_crc = crc_;  // of the bytes before this record
  if (absl::Status status = LoadRecord(head); !status.ok()) return status;
  McapFields fields(Content(), head.content_offset(), file_.path());
  const uint64_t summary_start = fields.U64("the summary_start");
  fields.U64("the summary_offset_start");
  const uint32_t expected_crc = fields.U32("the summary_crc");
  if (summary_start != 0 && (section_ != Section::kSummary || summary_start != summary_start_)) {
    return Damaged(head.content_offset(),
                   fmt::format("summary_start = {}, expected {}", summary_start,
                               section_ == Section::kSummary ? summary_start_ : 0));
  }
  const std::string_view covered = std::string_view(buffer_).substr(0, buffer_.size() - 4);
  const uint32_t crc = JoinCrc32(summary_crc, Crc32(covered), covered.size());
  if (expected_crc != 0 && section_ == Section::kSummary && crc != expected_crc) {
    return Damaged(head.offset, fmt::format("the summary has the checksum {:08x}, expected {:08x}",
                                            crc, expected_crc));
  }

  std::string magic(std::min<uint64_t>(kMcapMagic.size(), file_.size_bytes() - offset_), '\0');
  if (absl::Status status = ReadInto(offset_, magic); !status.ok()) return status;
  if (magic != kMcapMagic.substr(0, magic.size())) {
    return Damaged(offset_, fmt::format("expected {}, the end of an MCAP file, found {}",
                                        HexOf(kMcapMagic), HexOf(magic)));
  }
  if (magic.size() < kMcapMagic.size()) return Torn("the last 8 bytes");
  offset_ += magic.size();
  if (offset_ != file_.size_bytes()) {
    return Damaged(offset_, fmt::format("expected the end of the file, found {} bytes more",
                                        file_.size_bytes() - offset_));
  }
  section_ = Section::kEnd;
  return absl::OkStatus();
}

absl::Status McapReader::SkipRecord(const RecordHead& head) {
  for (offset_ = head.offset; offset_ < head.end();) {
    buffer_.resize(std::min<uint64_t>(kPieceSize, head.end() - offset_));
    if (absl::Status status = ReadInto(offset_, buffer_); !status.ok()) return status;
    AddToCrc(Crc32(buffer_), buffer_.size());
    offset_ += buffer_.size();
  }
  return absl::OkStatus();
}

absl::Status McapReader::LoadRecord(const RecordHead& head) {
  // A Message may be as large as a chunk; other records hold names.
  const uint64_t size_max_bytes = head.opcode == static_cast<uint8_t>(McapOpcode::kMessage)
                                      ? options_.chunk_size_max_bytes
                                      : kMcapKeptSizeMax;
  if (head.size_bytes > size_max_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: byte {}: a {} of {} bytes; this reader takes at most {}", file_.path(),
                    head.offset, McapRecordName(head.opcode), head.size_bytes, size_max_bytes));
  }
  if (absl::Status status = LoadBytes(head); !status.ok()) return status;
  AddToCrc(Crc32(buffer_), buffer_.size());
  return absl::OkStatus();
}

absl::Status McapReader::LoadBytes(const RecordHead& head) {
  buffer_.clear();  // so that growing copies nothing
  buffer_.resize(kMcapRecordHeadSize + head.size_bytes);
  offset_ = head.end();
  return ReadInto(head.offset, buffer_);
}

std::string_view McapReader::Content() const {
  return std::string_view(buffer_).substr(kMcapRecordHeadSize);
}

absl::Status McapReader::ReadInto(uint64_t offset, std::span<char> out) {
  const absl::StatusOr<size_t> num_read = file_.ReadAt(offset, std::as_writable_bytes(out));
  if (!num_read.ok()) return num_read.status();
  if (*num_read == out.size()) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "{}: the file was cut to {} bytes while it was read; the messages before are whole",
      file_.path(), offset + *num_read));
}

void McapReader::AddToCrc(uint32_t crc, uint64_t size_bytes) {
  crc_ = JoinCrc32(crc_, crc, size_bytes);
}

absl::Status McapReader::Damaged(uint64_t offset, std::string_view text) const {
  return DamagedFile(file_.path(), offset, text);
}

absl::Status McapReader::Torn(std::string_view what) const {
  return TornFile(file_.path(), file_.size_bytes(), what);
}

}  // namespace specd
