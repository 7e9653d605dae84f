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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/file_io.h"
#include "daemon/trace/mcap_format.h"
#include "daemon/trace/mcap_records.h"

namespace specd {

struct McapReaderOptions {
  uint64_t chunk_size_max_bytes = kMcapChunkSizeMax;  // larger chunks are refused
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
  static absl::StatusOr<McapReader> Start(FileReader file, const McapReaderOptions& options);

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
  // Where a record lies, from its opcode on. The content lies in the file.
  struct RecordHead {
    uint8_t opcode = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;  // of the content
    uint64_t content_offset() const { return offset + kMcapRecordHeadSize; }
    uint64_t end() const { return content_offset() + size_bytes; }
  };

  McapReader(FileReader file, const McapReaderOptions& options)
      : file_(std::move(file)), options_(options), records_(file_.path(), file_.size_bytes()) {}

  absl::Status ReadBeginning();
  absl::StatusOr<bool> FindMessage(McapMessage* message);

  // Records of the file.
  absl::Status ReadRecord();
  absl::StatusOr<RecordHead> ReadHead();
  absl::Status ReadDataRecord(const RecordHead& head);
  absl::Status ReadSummaryRecord(const RecordHead& head);
  absl::Status ReadChunk(const RecordHead& head);
  absl::Status RefuseCompression(const RecordHead& head, uint32_t name_size_bytes);
  absl::Status ReadMetadata(const RecordHead& head);
  absl::Status ReadDataEnd(const RecordHead& head);
  absl::Status ReadFooter(const RecordHead& head);
  absl::Status SkipRecord(const RecordHead& head);
  // Reads the whole record into buffer_, and moves on; LoadRecord adds it to crc_.
  absl::Status LoadRecord(const RecordHead& head);
  absl::Status LoadBytes(const RecordHead& head);
  std::string_view Content() const;  // of the record in buffer_

  absl::Status ReadInto(uint64_t offset, std::span<char> out);
  void AddToCrc(uint32_t crc, uint64_t size_bytes);
  absl::Status Damaged(uint64_t offset, std::string_view text) const;
  absl::Status Torn(std::string_view what) const;

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

  std::string buffer_;  // the Chunk that records_ takes from, or another record
  McapRecords records_;
  std::vector<McapMetadata> metadata_;
};

}  // namespace specd
