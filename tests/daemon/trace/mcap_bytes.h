// MemoryFile, Record and ReadAll make and take apart trace files for the tests of daemon/trace.
//
// The bytes are put together here as the MCAP specification describes them (mcap.dev/spec), without
// the code under test. A MemoryFile has no name and goes away with its last descriptor.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "daemon/trace/mcap_reader.h"
#include "daemon/trace/mcap_writer.h"

namespace specd {

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("trace", MFD_CLOEXEC)) { REQUIRE(fd_.valid()); }
  explicit MemoryFile(std::string_view bytes) : MemoryFile() {
    REQUIRE(pwrite(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

  int fd() const { return fd_.get(); }
  FileWriter writer() const { return {UniqueFd(dup(fd_.get())), "a.mcap"}; }
  FileReader reader() const { return *FileReader::Start(UniqueFd(dup(fd_.get())), "a.mcap"); }

  std::string bytes() const {
    struct stat info = {};
    REQUIRE(fstat(fd_.get(), &info) == 0);
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    REQUIRE(pread(fd_.get(), bytes.data(), bytes.size(), 0) == info.st_size);
    return bytes;
  }

 private:
  UniqueFd fd_;
};

inline std::string Little(uint64_t value, int size_bytes) {
  std::string bytes;
  for (int i = 0; i < size_bytes; ++i, value >>= 8) bytes.push_back(static_cast<char>(value));
  return bytes;
}

inline std::string Text(std::string_view text) {
  return Little(text.size(), 4) + std::string(text);
}

inline std::string Record(int opcode, std::string_view content) {
  return std::string(1, static_cast<char>(opcode)) + Little(content.size(), 8) +
         std::string(content);
}

// The checksum bit by bit, from its definition.
inline uint32_t BitwiseCrc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int i = 0; i < 8; ++i) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

inline constexpr std::string_view kMagicBytes = "\x89MCAP0\r\n";

inline std::string ChannelRecord(uint16_t id, uint16_t schema_id, std::string_view topic) {
  return Record(0x04, Little(id, 2) + Little(schema_id, 2) + Text(topic) + Text("json") + Text(""));
}

inline std::string MessageRecord(uint16_t channel_id, uint32_t sequence, uint64_t time_ns,
                                 std::string_view payload) {
  return Record(0x05, Little(channel_id, 2) + Little(sequence, 4) + Little(time_ns, 8) +
                          Little(time_ns, 8) + std::string(payload));
}

inline std::string ChunkRecord(std::string_view records, std::string_view compression = "") {
  return Record(0x06, Little(0, 8) + Little(0, 8) + Little(records.size(), 8) +
                          Little(BitwiseCrc(records), 4) + Text(compression) +
                          Little(records.size(), 8) + std::string(records));
}

// A finished file around a data section, without summary and checksums.
inline std::string FileOf(std::string_view data) {
  return std::string(kMagicBytes) + Record(0x01, Text("p") + Text("l")) + std::string(data) +
         Record(0x0f, Little(0, 4)) + Record(0x02, Little(0, 20)) + std::string(kMagicBytes);
}

struct ReadResult {
  // Topic, sequence, time and payload of each message.
  std::vector<std::string> messages;
  std::vector<uint64_t> chunk_offsets;
  std::vector<McapMetadata> metadata;
  absl::Status status;  // OK at the end of a whole file
};

inline ReadResult ReadAll(const MemoryFile& file, const McapReaderOptions& options = {}) {
  ReadResult result;
  absl::StatusOr<McapReader> reader = McapReader::Start(file.reader(), options);
  result.status = reader.status();
  if (!reader.ok()) return result;
  McapMessage message;
  absl::StatusOr<bool> more = reader->Next(&message);
  for (; more.ok() && *more; more = reader->Next(&message)) {
    const std::string_view payload(reinterpret_cast<const char*>(message.payload.data()),
                                   message.payload.size());
    result.messages.push_back(std::string(message.topic) + ' ' + std::to_string(message.sequence) +
                              ' ' + std::to_string(message.log_time_ns) + ' ' +
                              std::string(payload));
    result.chunk_offsets.push_back(message.chunk_offset);
    REQUIRE(message.chunk_offset < message.file_size_bytes);
  }
  result.status = more.status();
  result.metadata = reader->metadata();
  // The answer at the end is final.
  const absl::StatusOr<bool> again = reader->Next(&message);
  REQUIRE(again.status() == more.status());
  if (again.ok()) REQUIRE_FALSE(*again);
  return result;
}

inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

inline bool Contains(const absl::Status& status, std::string_view part) {
  return MessageOf(status).find(part) != std::string::npos;
}

}  // namespace specd
