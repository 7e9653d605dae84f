#include "ipc/sockets/instance_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

std::string LockPath(const std::string& path) { return path + ".lock"; }

// Tells whether `path` still names the file of `fd`. The process that held the lock before may have
// unlinked the file while this one waited. A lock on a file without a name excludes no other
// process.
bool StillNamed(int fd, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Tells whether a process listens at the path. It may hold the socket for another one, and no lock.
bool IsListenedTo(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  path.copy(address.sun_path, path.size());
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    const int done =
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    if (done == 0 || errno == EAGAIN) return true;
  }
  return false;
}

absl::Status RemoveLeftover(const std::string& path, const std::string& field) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) return absl::OkStatus();
  if (!S_ISSOCK(found.st_mode)) {
    return MakeError(SPECD_ERROR_STATE, field,
                     fmt::format("{} exists and is no socket; choose another path", path));
  }
  if (IsListenedTo(path)) {
    return MakeError(SPECD_ERROR_STATE, field,
                     fmt::format("another process listens at {}; stop it (systemctl stop "
                                 "specd.socket), or choose another path",
                                 path));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InstanceLock> InstanceLock::Take(const std::string& path, const std::string& field,
                                                bool owns_file) {
  const std::string lock_path = LockPath(path);
  while (true) {
    UniqueFd fd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
      return MakeErrnoError(SPECD_ERROR_NOT_FOUND, field, fmt::format("cannot open {}", lock_path),
                            errno);
    }
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        return MakeErrnoError(SPECD_ERROR_STATE, field, fmt::format("cannot lock {}", lock_path),
                              errno);
      }
      return MakeError(
          SPECD_ERROR_STATE, field,
          fmt::format("another specd serves {}; stop it, or choose another path", path));
    }
    if (!StillNamed(fd.get(), lock_path)) continue;
    const absl::Status status = owns_file ? RemoveLeftover(path, field) : absl::OkStatus();
    if (!status.ok()) {
      unlink(lock_path.c_str());
      return status;
    }
    return InstanceLock(std::move(fd), path, owns_file);
  }
}

InstanceLock& InstanceLock::operator=(InstanceLock&& other) noexcept {
  if (this != &other) {
    Release();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    owns_file_ = other.owns_file_;
  }
  return *this;
}

InstanceLock::~InstanceLock() { Release(); }

void InstanceLock::Release() {
  if (!fd_.valid()) return;
  if (owns_file_) unlink(path_.c_str());
  unlink(LockPath(path_).c_str());
  fd_.Reset();
}

}  // namespace specd
