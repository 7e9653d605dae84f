#include "daemon/trace/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status FileError(const std::string& path, std::string_view action, int error_number) {
  int code = SPECD_ERROR_INTERNAL;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = SPECD_ERROR_EXHAUSTED;
      break;
    case ENOENT:
    case ENOTDIR:
      code = SPECD_ERROR_NOT_FOUND;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = SPECD_ERROR_PERMISSION;
      break;
    case EEXIST:
      code = SPECD_ERROR_STATE;
      break;
    default:
      break;
  }
  return MakeErrnoError(code, "", fmt::format("{}: cannot {}", path, action), error_number);
}

// QuietWrites holds back the signals of failed writes for its lifetime, in this thread. They would
// end the process.
class QuietWrites {
 public:
  QuietWrites() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGPIPE);
    sigaddset(&signals_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    // A signal that was pending before is not from these writes.
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 1) sigdelset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  QuietWrites(const QuietWrites&) = delete;
  QuietWrites& operator=(const QuietWrites&) = delete;
  ~QuietWrites() {
    const int error_number = errno;
    const timespec no_wait = {};
    while (sigtimedwait(&signals_, nullptr, &no_wait) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error_number;
  }

 private:
  sigset_t signals_;
  sigset_t before_;
};

}  // namespace

absl::Status DamagedFile(const std::string& path, uint64_t offset, std::string_view text) {
  return absl::InvalidArgumentError(fmt::format("{}: byte {}: {}", path, offset, text));
}

absl::Status TornFile(const std::string& path, uint64_t size_bytes, std::string_view what) {
  return absl::DataLossError(fmt::format(
      "{}: the file ends at byte {}, within {}; its writer was stopped. What lies before is whole",
      path, size_bytes, what));
}

bool LockForWriting(int fd) {
  constexpr int kTriesMax = 1000;
  for (int i = 0; i < kTriesMax; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    usleep(1000);
  }
  return false;
}

absl::StatusOr<FileWriter> FileWriter::Create(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return FileError(path, "make the file", errno);
  (void)LockForWriting(fd.get());  // a file system without locks has the file all the same
  return FileWriter(std::move(fd), path);
}

absl::Status FileWriter::Write(std::span<const std::byte> bytes) {
  if (!status_.ok()) return status_;
  const QuietWrites quiet;
  while (!bytes.empty()) {
    const ssize_t num_written = write(fd_.get(), bytes.data(), bytes.size());
    if (num_written < 0) {
      if (errno == EINTR) continue;
      return Fail(FileError(path_, fmt::format("write at byte {}", offset_), errno));
    }
    bytes_written_ += static_cast<uint64_t>(num_written);
    offset_ += static_cast<uint64_t>(num_written);
    bytes = bytes.subspan(num_written);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::SkipTo(uint64_t offset) {
  if (!status_.ok()) return status_;
  if (lseek(fd_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    return Fail(FileError(path_, fmt::format("move to byte {}", offset), errno));
  }
  offset_ = offset;
  return absl::OkStatus();
}

absl::Status FileWriter::Close() {
  if (!status_.ok()) return status_;
  if (close(fd_.Release()) != 0) return Fail(FileError(path_, "close the file", errno));
  status_ =
      absl::FailedPreconditionError(fmt::format("{}: the file is finished; make a new one", path_));
  return absl::OkStatus();
}

absl::Status FileWriter::Fail(absl::Status error) {
  status_ = std::move(error);
  return status_;
}

absl::StatusOr<FileReader> FileReader::Open(const std::string& path) {
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return FileError(path, "open the file", errno);
  return Start(std::move(fd), path);
}

absl::StatusOr<FileReader> FileReader::Start(UniqueFd fd, std::string path) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return FileError(path, "look at the file", errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        fmt::format("{}: is no regular file; copy the trace into one", path));
  }
  return FileReader(std::move(fd), std::move(path), static_cast<uint64_t>(info.st_size));
}

absl::StatusOr<size_t> FileReader::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  size_t num_read = 0;
  while (num_read < out.size()) {
    const ssize_t num = pread(fd_.get(), out.data() + num_read, out.size() - num_read,
                              static_cast<off_t>(offset + num_read));
    if (num < 0) {
      if (errno == EINTR) continue;
      return FileError(path_, fmt::format("read at byte {}", offset + num_read), errno);
    }
    if (num == 0) break;
    num_read += static_cast<size_t>(num);
  }
  return num_read;
}

absl::StatusOr<uint64_t> FileReader::AskSize() const {
  struct stat info = {};
  if (fstat(fd_.get(), &info) != 0) return FileError(path_, "look at the file", errno);
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace specd
