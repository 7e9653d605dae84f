// OutputFile writes a file that appears whole or not at all, for the commands that write one.
//
// The bytes go to a temporary file beside it. Commit gives that file its name; without Commit the
// destructor removes it. An existing file is replaced only by Commit. After Ctrl-C a write returns
// CANCELLED. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::replay {

// A name beside `path` that no file has yet, for a file that is written by others. The destructor
// removes the file, unless Commit has renamed it.
class TemporaryName {
 public:
  explicit TemporaryName(std::string path);
  TemporaryName(TemporaryName&& other) noexcept;
  TemporaryName& operator=(TemporaryName&&) = delete;
  ~TemporaryName();

  const std::string& temporary() const { return temporary_; }
  const std::string& path() const { return path_; }
  absl::Status Commit();
  // Leaves a file of the temporary name where it is.
  void Keep() { temporary_.clear(); }

 private:
  std::string path_;
  std::string temporary_;
};

class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  absl::Status Write(std::string_view bytes);
  uint64_t size_bytes() const { return size_bytes_; }
  absl::Status Commit();

 private:
  OutputFile(TemporaryName name, int fd) : name_(std::move(name)), fd_(fd) {}

  TemporaryName name_;
  int fd_;
  uint64_t size_bytes_ = 0;
};

// Writes a whole text: to the file, or to stdout if `path` is empty or "-".
absl::Status WriteText(const std::string& path, std::string_view text);

}  // namespace specd::replay
