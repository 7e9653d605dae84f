// RowFileWriter and RowFileReader write and read raw rows beside a trace.
//
// The trace has the offset, type and shape of every entry; the file has only the bytes. Its first
// 4096 bytes are a header that a person can read in a hex editor. Each entry begins at a multiple
// of 4096, so that numpy can map it: numpy.memmap(path, dtype, 'r', offset, shape). An entry may
// hold several rows, such as those of one round. After an error, such as a full disk, the writer
// returns the first error again. Movable; an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/file_io.h"

namespace specd {

inline constexpr std::string_view kRowFileMagic = "SPECDROW";
inline constexpr uint32_t kRowFileVersion = 1;
// The size of the header, and the alignment of entries: a page of memory.
inline constexpr uint64_t kRowFileAlignment = 4096;

class RowFileWriter {
 public:
  // Makes the file, which must not exist yet, readable for its owner only, and writes its header.
  static absl::StatusOr<RowFileWriter> Create(const std::string& path);
  // The same on a file that is open already, and empty.
  static absl::StatusOr<RowFileWriter> Start(FileWriter out);

  // Writes one entry and returns its offset. The pieces of one entry lie one after the other.
  absl::StatusOr<uint64_t> Append(std::span<const std::byte> entry);
  absl::StatusOr<uint64_t> Append(std::span<const std::span<const std::byte>> pieces);
  // Closes the file. Every later call is refused.
  absl::Status Finish();

  // The bytes that the kernel has taken; after an error too.
  uint64_t bytes_written() const { return out_.bytes_written(); }
  // The size of the file, with the gaps before entries.
  uint64_t size_bytes() const { return out_.offset(); }

 private:
  explicit RowFileWriter(FileWriter out) : out_(std::move(out)) {}

  FileWriter out_;
};

class RowFileReader {
 public:
  struct Place {
    uint64_t entry_offset = 0;
    uint64_t skip_bytes = 0;  // into the entry
  };

  static absl::StatusOr<RowFileReader> Open(const std::string& path);
  static absl::StatusOr<RowFileReader> Start(FileReader file);

  // Fills `out`. If the file ends before, it is torn: the error is DATA_LOSS.
  absl::Status Read(const Place& place, std::span<std::byte> out) const;

  uint64_t file_size_bytes() const { return file_.size_bytes(); }
  const std::string& path() const { return file_.path(); }

 private:
  explicit RowFileReader(FileReader file) : file_(std::move(file)) {}

  FileReader file_;
};

}  // namespace specd
