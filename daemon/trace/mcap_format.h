// McapRecord and McapFields encode and decode the records of an MCAP file for McapWriter and
// McapReader.
//
// The format is that of the MCAP specification (mcap.dev/spec): an opcode of one byte, the size of
// the content in eight, the content. Numbers are little-endian. Only daemon/trace uses these
// classes. Pure functions of their input; an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace specd {

inline constexpr std::string_view kMcapMagic = "\x89MCAP0\r\n";
// The largest chunk that McapWriter writes and McapReader takes by default.
inline constexpr uint64_t kMcapChunkSizeMax = uint64_t{256} << 20;
// The names, schemas and metadata of a file, which a reader keeps in memory.
inline constexpr uint64_t kMcapKeptSizeMax = uint64_t{16} << 20;
inline constexpr size_t kMcapMapSizeMax = 4096;  // entries of one map

using McapMap = std::vector<std::pair<std::string, std::string>>;

// The memory that a record of metadata takes, with its objects; it counts for kMcapKeptSizeMax.
inline uint64_t McapKeptSize(uint64_t record_size_bytes, const McapMap& values) {
  return record_size_bytes + (1 + values.size()) * sizeof(McapMap::value_type);
}

enum class McapOpcode : uint8_t {
  kHeader = 0x01,
  kFooter = 0x02,
  kSchema = 0x03,
  kChannel = 0x04,
  kMessage = 0x05,
  kChunk = 0x06,
  kMessageIndex = 0x07,
  kChunkIndex = 0x08,
  kAttachment = 0x09,
  kAttachmentIndex = 0x0a,
  kStatistics = 0x0b,
  kMetadata = 0x0c,
  kMetadataIndex = 0x0d,
  kSummaryOffset = 0x0e,
  kDataEnd = 0x0f,
};

// Opcode and size of the content.
inline constexpr size_t kMcapRecordHeadSize = 9;
// Channel id, sequence, log time, publish time.
inline constexpr size_t kMcapMessageHeadSize = 22;
// The content of a footer: two offsets and a checksum.
inline constexpr size_t kMcapFooterSize = 20;

// Returns "Chunk" for 0x06, and "record 0x42" for an opcode that the specification does not have.
std::string McapRecordName(uint8_t opcode);

// McapRecord appends one record to a string, field by field. The destructor fills in the size.
class McapRecord {
 public:
  McapRecord(std::string* out, McapOpcode opcode);
  McapRecord(const McapRecord&) = delete;
  McapRecord& operator=(const McapRecord&) = delete;
  ~McapRecord();

  McapRecord& U8(uint8_t value);
  McapRecord& U16(uint16_t value);
  McapRecord& U32(uint32_t value);
  McapRecord& U64(uint64_t value);
  McapRecord& Bytes(std::string_view bytes);       // without a size
  McapRecord& SizedBytes(std::string_view bytes);  // a size in four bytes, then the bytes
  McapRecord& Map(const McapMap& values);

 private:
  std::string* out_;
  size_t begin_;
};

// Tells whether a string may stand in a record: the specification demands UTF-8.
bool IsMcapText(std::string_view text);

// Little-endian numbers outside a record, and over bytes that are there already.
void AppendU16(std::string* out, uint16_t value);
void AppendU32(std::string* out, uint32_t value);
void AppendU64(std::string* out, uint64_t value);
void PutU64(char* out, uint64_t value);

// McapFields reads the fields of one record in order and remembers the first error. A decoder is
// therefore a list of fields and one question at the end.
class McapFields {
 public:
  // `offset` is the place of `content` in the file. Errors name it, and the path.
  McapFields(std::string_view content, uint64_t offset, const std::string& path)
      : content_(content), offset_(offset), path_(path) {}

  uint16_t U16(std::string_view field);
  uint32_t U32(std::string_view field);
  uint64_t U64(std::string_view field);
  std::string_view Bytes(std::string_view field, uint64_t size_bytes);
  std::string_view SizedBytes(std::string_view field);  // a size in four bytes, then the bytes
  std::string_view String(std::string_view field);      // the same, and UTF-8
  McapMap Map(std::string_view field);
  // The bytes that no call has taken.
  std::string_view Rest() const { return content_.substr(position_); }

  // Fields after those that were read are of a later version; a reader ignores them.
  const absl::Status& status() const { return status_; }

 private:
  uint64_t Number(std::string_view field, size_t size_bytes);
  bool Need(std::string_view field, uint64_t size_bytes);

  std::string_view content_;
  size_t position_ = 0;
  uint64_t offset_;
  const std::string& path_;
  absl::Status status_;
};

}  // namespace specd
