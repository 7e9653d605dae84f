// McapReader reads the messages of an MCAP file for specd-replay, in the order of the file and in
// bounded memory.
//
// Use it for traces, whole or torn, and for uncompressed files of other writers. The reader holds
// one chunk at a time. It trusts no byte: sizes, opcodes and checksums are checked, and every error
// names the path and the byte. Movable; an object belongs to one thread.
//
//   absl::StatusOr<McapReader> reader = McapReader::Open("rounds.mcap", {});
//   McapMessage message;
//   absl::StatusOr<bool> more = true;
//   while ((more = reader->Next(&message)).ok() && *more) Show(message);
//   if (IsTornFile(more.status())) Warn(more.status());  // the messages before the tear are whole
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/file_io.h"
#include "daemon/trace/mcap_format.h"

namespace specd {

// The writer of a torn file was stopped before Finish(): by a crash, a kill or a full disk.
inline bool IsTornFile(const absl::Status& status) { return absl::IsDataLoss(status); }

struct McapReaderOptions {
  uint64_t chunk_size_max_bytes = kMcapChunkSizeMax;  // larger chunks are refused
};

// The views are valid until the next call of the reader.
struct McapMessage {
  std::string_view topic;
  std::string_view encoding;
  std::string_view schema_name;  // "" without a schema
  uint16_t channel_id = 0;
  uint32_t sequence = 0;
  uint64_t log_time_ns = 0;
  std::span<const std::byte> payload;
  uint64_t chunk_offset = 0;  // in the file; of the message itself if it lies in no chunk
  uint64_t file_size_bytes = 0;
};

struct McapMetadata {
  std::string name;
  McapMap values;
};

class McapReader {
 public:
  // Checks the beginning of the file. For a file that ends within its header, the error is that of
  // a torn file.
  static absl::StatusOr<McapReader> Open(const std::string& path, const McapReaderOptions& options);
  static absl::StatusOr<McapReader> Start(UniqueFd fd, const std::string& path,
                                          const McapReaderOptions& options);

  // Returns true with the next message, or false at the end of a whole file. An error is final:
  // every later call returns it again. IsTornFile() tells a torn file from a damaged one.
  absl::StatusOr<bool> Next(McapMessage* message);

  // The metadata records that lie before the next message, in the order of the file.
  const std::vector<McapMetadata>& metadata() const { return metadata_; }
  const std::string& profile() const { return profile_; }
  const std::string& library() const { return library_; }
  uint64_t file_size_bytes() const { return file_.size_bytes(); }

 private:
  enum class Section { kData, kSummary, kEnd };
  struct Schema {
    std::string record;  // to compare with a record that repeats it
    std::string name;
  };
  struct Channel {
    std::string record;
    std::string topic;
    std::string encoding;
    std::string schema_name;
  };
  // Where a record lies, from its opcode on. The content lies in the file.
  struct RecordHead {
    uint8_t opcode = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;  // of the content
    uint64_t content_offset() const { return offset + kMcapRecordHeadSize; }
    uint64_t end() const { return content_offset() + size_bytes; }
  };

  McapReader(FileReader file, const McapReaderOptions& options)
      : file_(std::move(file)), options_(options) {}

  absl::Status ReadBeginning();
  absl::StatusOr<bool> FindMessage(McapMessage* message);

  // Records of the file.
  absl::Status ReadRecord();
  absl::StatusOr<RecordHead> ReadHead();
  absl::Status ReadDataRecord(const RecordHead& head);
  absl::Status ReadSummaryRecord(const RecordHead& head);
  absl::Status ReadChunk(const RecordHead& head);
  absl::Status ReadMetadata(const RecordHead& head);
  absl::Status ReadDataEnd(const RecordHead& head);
  absl::Status ReadFooter(const RecordHead& head);
  absl::Status SkipRecord(const RecordHead& head);
  // Reads the whole record into buffer_.
  absl::Status LoadRecord(const RecordHead& head);

  // Records of the chunk in memory.
  absl::StatusOr<bool> TakeRecord(McapMessage* message);
  absl::Status AddSchema(std::string_view content, uint64_t offset);
  absl::Status AddChannel(std::string_view content, uint64_t offset);
  absl::Status TakeMessage(std::string_view content, uint64_t offset, McapMessage* message);

  absl::Status ReadInto(uint64_t offset, std::span<char> out);
  // Counts names, schemas and metadata, which stay in memory.
  absl::Status Keep(uint64_t size_bytes, uint64_t offset);
  absl::Status Damaged(uint64_t offset, std::string_view text) const;
  absl::Status Torn(uint64_t offset, std::string_view text) const;

  FileReader file_;
  McapReaderOptions options_;
  absl::Status status_;
  std::string profile_;
  std::string library_;

  uint64_t offset_ = 0;  // of the next record
  Section section_ = Section::kData;
  bool has_footer_ = false;  // the file ends as a finished one does
  uint32_t crc_ = 0;         // of the section so far
  uint64_t summary_start_ = 0;

  // The records in memory: those of a chunk, or one that lies in no chunk.
  std::string buffer_;
  std::string_view records_;     // those not taken yet, in buffer_
  uint64_t records_offset_ = 0;  // of records_ in the file
  uint64_t chunk_offset_ = 0;

  std::map<uint16_t, Schema> schemas_;
  std::map<uint16_t, Channel> channels_;
  std::vector<McapMetadata> metadata_;
  uint64_t kept_size_bytes_ = 0;
};

}  // namespace specd
