// McapRecords takes the records of one chunk after the other for McapReader: it keeps channels,
// and hands out messages.
//
// McapReader loads chunks from the file; this class sees only memory. Every size and id is checked,
// and errors name the byte of the file. Movable; an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd {

// The views are valid until the next call of the reader.
struct McapMessage {
  std::string_view topic;
  std::string_view encoding;
  uint16_t channel_id = 0;
  uint32_t sequence = 0;
  uint64_t log_time_ns = 0;
  std::span<const std::byte> payload;
  uint64_t chunk_offset = 0;  // in the file; of the message itself if it lies in no chunk
  uint64_t file_size_bytes = 0;
};

class McapRecords {
 public:
  McapRecords(std::string path, uint64_t file_size_bytes)
      : path_(std::move(path)), file_size_bytes_(file_size_bytes) {}

  struct Chunk {
    std::string_view records;
    uint64_t records_offset = 0;  // in the file
    uint64_t offset = 0;          // of the Chunk record in the file
  };
  // REQUIRES: Next has returned false. The memory stays as it is until Next does so again.
  void Load(const Chunk& chunk) { chunk_ = chunk; }

  // Returns true with the next message, or false if no record is left.
  absl::StatusOr<bool> Next(McapMessage* message);

  // Counts bytes that stay in memory: names, and the metadata of McapReader.
  absl::Status Keep(uint64_t size_bytes, uint64_t offset);

 private:
  struct Channel {
    std::string record;  // to compare with a record that repeats it
    std::string topic;
    std::string encoding;
  };
  struct Record {
    uint8_t opcode = 0;
    std::string_view content;
    uint64_t offset = 0;  // of the content in the file
  };

  absl::StatusOr<Record> Take();
  absl::Status AddChannel(const Record& record);
  absl::Status ReadMessage(const Record& record, McapMessage* message) const;

  std::string path_;
  uint64_t file_size_bytes_;
  Chunk chunk_;  // its records that are not taken yet
  std::map<uint16_t, Channel> channels_;
  uint64_t kept_size_bytes_ = 0;
};

}  // namespace specd
