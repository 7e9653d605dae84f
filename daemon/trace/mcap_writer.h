// McapWriter writes an MCAP file for the recorder of rounds: messages in chunks, metadata, and a
// summary for readers that seek.
//
// Use it for one file. Messages gather in a chunk in memory, and a full chunk is one write(2).
// Whole chunks survive a crash, and McapReader (daemon/trace/mcap_reader.h) reads them. After an
// error, such as a full disk, every call returns the first error again. The format is that of the
// MCAP specification (mcap.dev/spec), without compression. Movable; an object belongs to one
// thread.
//
//   absl::StatusOr<McapWriter> writer = McapWriter::Create("rounds.mcap", {});
//   absl::StatusOr<uint16_t> rounds = writer->AddChannel({.topic = "round", .encoding =
//   "msgpack"}); writer->Write({.channel_id = *rounds, .log_time_ns = now_ns, .payload = bytes});
//   writer->Finish();
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

namespace specd {

struct McapWriterOptions {
  // A chunk is closed before it would grow larger. A larger message has a chunk of its own.
  size_t chunk_size_bytes = size_t{1} << 20;
};

struct McapChannel {
  std::string_view topic;
  std::string_view encoding;  // of the messages, such as "msgpack"
  McapMap metadata;
};

class McapWriter {
 public:
  struct Message {
    uint16_t channel_id = 0;
    uint32_t sequence = 0;
    uint64_t log_time_ns = 0;
    std::span<const std::byte> payload;
  };

  // Makes the file, which must not exist yet, readable for its owner only, and writes its header.
  static absl::StatusOr<McapWriter> Create(const std::string& path,
                                           const McapWriterOptions& options);
  // The same on a file that is open already, and empty, or on a pipe.
  static absl::StatusOr<McapWriter> Start(FileWriter out, const McapWriterOptions& options);

  McapWriter(McapWriter&&) noexcept = default;
  McapWriter& operator=(McapWriter&&) noexcept = default;
  // Without Finish(), the messages since the last whole chunk are lost, as after a crash.
  ~McapWriter() = default;

  // Returns the id of the new channel, from 1 on. All strings are UTF-8.
  absl::StatusOr<uint16_t> AddChannel(const McapChannel& channel);

  absl::Status Write(const Message& message);
  // Closes the chunk first, because metadata lies between chunks.
  absl::Status WriteMetadata(std::string_view name, const McapMap& values);

  // Closes the chunk, so that a crash of this process loses nothing that was written before. The
  // kernel writes it to the disk later.
  absl::Status Flush();
  // Closes the chunk, writes the summary and closes the file. Every later call is refused.
  absl::Status Finish();

  // The bytes that the kernel has taken; after an error too.
  uint64_t bytes_written() const { return out_.bytes_written(); }
  // The bytes of the open chunk, which are not written yet.
  uint64_t bytes_pending() const;
  // The messages of a channel that no whole chunk of the file holds. After an error they are lost.
  // REQUIRES: AddChannel has returned the id.
  uint64_t num_pending(uint16_t channel_id) const;

 private:
  // The state of one channel: its number of messages, and the index of the open chunk.
  struct ChannelState {
    uint64_t num_messages = 0;
    uint64_t num_in_whole_chunks = 0;
    std::string chunk_index;  // pairs of log time and offset, as MessageIndex has them
  };
  struct TimeRange {
    uint64_t first_ns = 0;
    uint64_t last_ns = 0;
    void Extend(uint64_t time_ns, bool is_first);
  };

  McapWriter(FileWriter out, size_t chunk_size_bytes)
      : out_(std::move(out)), chunk_size_bytes_(chunk_size_bytes) {}

  // Appends a channel to the open chunk.
  absl::Status AddToChunk(std::string_view record);
  // Counts the names and metadata, which a reader keeps in memory.
  absl::Status Keep(uint64_t size_bytes);
  // Closes the chunk if a record of that size would make it too large.
  absl::Status MakeRoom(uint64_t size_bytes);
  absl::Status CloseChunk();
  void BeginChunk();
  // Appends to the file and to the checksum of the data section.
  absl::Status WriteData(std::string_view bytes);
  std::string EncodeStatistics() const;
  std::string EncodeSummary(uint64_t summary_start) const;

  FileWriter out_;
  size_t chunk_size_bytes_;

  // The open chunk: room for its head, then its records.
  std::string chunk_;
  uint64_t num_chunk_messages_ = 0;
  TimeRange chunk_times_;

  std::vector<ChannelState> channels_;  // of the channel with id index + 1
  uint32_t num_chunks_ = 0;
  uint32_t num_metadata_ = 0;
  uint64_t num_messages_ = 0;
  TimeRange times_;
  uint32_t data_crc_ = 0;
  uint64_t kept_size_bytes_ = 0;

  // The groups of the summary, as records.
  std::string channel_records_;
  std::string chunk_index_records_;
  std::string metadata_index_records_;
};

}  // namespace specd
