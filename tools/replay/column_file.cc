#include "tools/replay/column_file.h"

#include <string>
#include <utility>

#include "daemon/trace/crc32.h"

namespace specd::replay {

ColumnFile::ColumnFile(ColumnFile&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)),
      has_failed_(other.has_failed_),
      size_bytes_(other.size_bytes_),
      crc_(other.crc_) {}

ColumnFile::~ColumnFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void ColumnFile::Append(std::string_view bytes) {
  if (file_ == nullptr && !has_failed_) file_ = std::tmpfile();
  has_failed_ = has_failed_ || file_ == nullptr ||
                std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size();
  crc_ = JoinCrc32(crc_, Crc32(bytes), bytes.size());
  size_bytes_ += bytes.size();
}

absl::Status ColumnFile::Read(const std::function<absl::Status(std::string_view)>& take) {
  if (has_failed_ || (file_ != nullptr && std::fflush(file_) != 0)) {
    return absl::UnavailableError("a temporary file cannot be written: is the disk full?");
  }
  if (file_ == nullptr) return absl::OkStatus();
  std::rewind(file_);
  std::string piece(size_t{1} << 16, '\0');
  for (;;) {
    const size_t count = std::fread(piece.data(), 1, piece.size(), file_);
    if (count == 0) break;
    if (absl::Status status = take({piece.data(), count}); !status.ok()) return status;
  }
  return std::ferror(file_) == 0 ? absl::OkStatus()
                                 : absl::UnavailableError("a temporary file cannot be read");
}

}  // namespace specd::replay
