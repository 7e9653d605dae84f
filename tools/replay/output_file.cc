#include "tools/replay/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tools/replay/interrupt.h"

namespace specd::replay {
namespace {

absl::Status Failed(std::string_view what, const std::string& path) {
  return absl::UnavailableError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

TemporaryName::TemporaryName(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.{}.part", path_, getpid())) {}

TemporaryName::TemporaryName(TemporaryName&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, std::string())) {}

TemporaryName::~TemporaryName() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status TemporaryName::Commit() {
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("cannot be written", path_);
  temporary_.clear();
  return absl::OkStatus();
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  TemporaryName name(path);
  const int fd = open(name.temporary().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    absl::Status status = Failed("cannot be made", name.temporary());
    name.Keep();  // it is not ours
    return status;
  }
  return OutputFile(std::move(name), fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::Write(std::string_view bytes) {
  if (WasInterrupted()) return Interrupted();
  while (!bytes.empty()) {
    const ssize_t count = write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed("cannot be written", name_.path());
    bytes.remove_prefix(count);
    size_bytes_ += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (close(std::exchange(fd_, -1)) != 0) return Failed("cannot be written", name_.path());
  return name_.Commit();
}

absl::Status WriteText(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!is_written || std::fflush(stdout) != 0) return Failed("cannot be written", "stdout");
    return absl::OkStatus();
  }
  absl::StatusOr<OutputFile> file = OutputFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = file->Write(text); !status.ok()) return status;
  return file->Commit();
}

}  // namespace specd::replay
