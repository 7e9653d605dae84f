// FileWriter and FileReader write and read files for the classes of this room, with errors that
// name the path, the place and the reason.
//
// Partial writes and reads are continued. A write past the process's limit of file sizes, or to a
// pipe without a reader, is an error and no signal. Movable; an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"

namespace specd {

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The errors of a file's content. A damaged file has other bytes at `offset` than it should. A torn
// file ends within `what`: its writer was stopped by a crash, a kill or a full disk. Callers may
// treat a torn file as a warning, because what lies before the tear is whole.
absl::Status DamagedFile(const std::string& path, uint64_t offset, std::string_view text);
absl::Status TornFile(const std::string& path, uint64_t size_bytes, std::string_view what);
inline bool IsTornFile(const absl::Status& status) { return absl::IsDataLoss(status); }

// Marks a file as one that is being written (flock). Another process that looks at the file has the
// lock for a moment, so this waits up to a second. False: the file has no such mark.
bool LockForWriting(int fd);

// FileWriter appends to one file. After an error every call returns that error.
class FileWriter {
 public:
  // Makes the file, which must not exist yet, readable for its owner only, and holds a lock on it
  // (flock) while it is open: other processes then see that it is being written.
  static absl::StatusOr<FileWriter> Create(const std::string& path);
  // REQUIRES: the descriptor stands at the beginning of an empty file, or is a pipe.
  FileWriter(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Write(std::span<const std::byte> bytes);
  // Moves forward to `offset` and leaves a hole. A pipe is refused.
  absl::Status SkipTo(uint64_t offset);
  // Closes the file; every later call is refused. Some file systems report a full disk only then.
  absl::Status Close();

  const absl::Status& status() const { return status_; }
  uint64_t bytes_written() const { return bytes_written_; }
  // The place of the next byte: the bytes written and the holes.
  uint64_t offset() const { return offset_; }
  const std::string& path() const { return path_; }

 private:
  absl::Status Fail(absl::Status error);

  UniqueFd fd_;
  std::string path_;
  uint64_t bytes_written_ = 0;
  uint64_t offset_ = 0;
  absl::Status status_;
};

// FileReader reads any place of one regular file.
class FileReader {
 public:
  static absl::StatusOr<FileReader> Open(const std::string& path);
  static absl::StatusOr<FileReader> Start(UniqueFd fd, std::string path);

  // Fills `out` from `offset` on. Returns the number of bytes, fewer only at the end of the file.
  absl::StatusOr<size_t> ReadAt(uint64_t offset, std::span<std::byte> out) const;
  // Asks again how large the file is; a recorder may still be writing it.
  absl::StatusOr<uint64_t> AskSize() const;

  uint64_t size_bytes() const { return size_bytes_; }  // when the file was opened
  const std::string& path() const { return path_; }

 private:
  FileReader(UniqueFd fd, std::string path, uint64_t size_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), size_bytes_(size_bytes) {}

  UniqueFd fd_;
  std::string path_;
  uint64_t size_bytes_;
};

}  // namespace specd
