// ColumnFile gathers the values of one column in a temporary file, so that an export of a long
// trace needs little memory.
//
// The file has no name and ends with the object. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace specd::replay {

class ColumnFile {
 public:
  ColumnFile() = default;
  ColumnFile(ColumnFile&& other) noexcept;
  ColumnFile& operator=(ColumnFile&&) = delete;
  ~ColumnFile();

  // Errors are remembered until Read.
  void Append(std::string_view bytes);
  template <class T>
  void Add(T value) {
    Append({reinterpret_cast<const char*>(&value), sizeof(value)});
  }

  uint64_t size_bytes() const { return size_bytes_; }
  uint32_t crc() const { return crc_; }
  // Gives the bytes piece by piece.
  absl::Status Read(const std::function<absl::Status(std::string_view)>& take);

 private:
  std::FILE* file_ = nullptr;
  bool has_failed_ = false;
  uint64_t size_bytes_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace specd::replay
