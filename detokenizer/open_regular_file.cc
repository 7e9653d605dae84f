#include "detokenizer/open_regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace specd {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "no regular file";
}

}  // namespace

absl::Status UnreadableFile(const std::string& path, const FileRole& role, int error) {
  return {absl::ErrnoToStatusCode(error),
          fmt::format("{}: cannot read {} ({}); name a readable {}", path, role.what,
                      std::strerror(error), role.example)};
}

absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path, const FileRole& role) {
  const auto refusal = [&](mode_t mode) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} is {}, from which a read may wait without end; copy it into a regular "
                    "file and name that one",
                    path, role.what, KindOf(mode)));
  };
  struct stat info = {};
  // Before it is opened, because a device may act when it is; and of what was opened.
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return refusal(info.st_mode);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return UnreadableFile(path, role, errno);
  OpenedFile file(fdopen(fd, "rb"));
  if (file == nullptr) {
    const int error = errno;
    close(fd);
    return UnreadableFile(path, role, error);
  }
  if (fstat(fd, &info) != 0) return UnreadableFile(path, role, errno);
  if (!S_ISREG(info.st_mode)) return refusal(info.st_mode);
  return file;
}

}  // namespace specd
