#include "ipc/sockets/accept_gate.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ipc/base/descriptors.h"
#include "ipc/base/unique_fd.h"

namespace specd {
namespace {

// "ipc:PATH" or "tcp:PORT".
std::string KeyOf(const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (endpoint.starts_with(kIpc)) return "ipc:" + endpoint.substr(kIpc.size());
  return "tcp:" + endpoint.substr(endpoint.rfind(':') + 1);
}

std::string KeyOf(int listener) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family == AF_UNIX) {
    const auto& path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
    return "ipc:" + std::string(path, strnlen(path, size - offsetof(sockaddr_un, sun_path)));
  }
  if (address.ss_family == AF_INET) {
    return fmt::format("tcp:{}", ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
  }
  if (address.ss_family == AF_INET6) {
    return fmt::format("tcp:{}", ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port));
  }
  return {};
}

// A connection that was let in. libzmq closes it, and the number may come back as something else,
// which has another inode.
struct Admitted {
  int fd;
  ino_t inode;
};

std::optional<ino_t> InodeOf(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return info.st_ino;
}

class Door {
 public:
  explicit Door(AcceptRules rules) : rules_(std::move(rules)) {}

  bool Admits(int fd) {
    if (IsReservedFrom(Peer::kSubscriber, fd))
      return TurnAway("this process has too many open files");
    ucred peer = {};
    socklen_t size = sizeof(peer);
    // A socket of another family has no such peer: it tells the user -1.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        peer.uid != static_cast<uid_t>(-1) && !Knows(peer.uid)) {
      return TurnAway(fmt::format("uid {} (pid {}) is not allowed", peer.uid, peer.pid));
    }
    if (admitted_.size() >= rules_.connections_max) {
      std::erase_if(admitted_, [](const Admitted& at) { return InodeOf(at.fd) != at.inode; });
    }
    if (admitted_.size() >= rules_.connections_max) {
      return TurnAway(fmt::format("{} are connected, as many as may be", admitted_.size()));
    }
    if (const std::optional<ino_t> inode = InodeOf(fd); inode.has_value()) {
      admitted_.push_back({fd, *inode});
    }
    return true;
  }
  bool TurnAway(std::string_view why) {
    rules_.on_turned_away(why);
    return false;
  }

 private:
  bool Knows(uid_t uid) const {
    return uid == geteuid() ||
           std::find(rules_.uids.begin(), rules_.uids.end(), uid) != rules_.uids.end();
  }

  const AcceptRules rules_;
  std::vector<Admitted> admitted_;
};

// All doors of the process. Never destroyed: threads of libzmq may outlive static objects.
class Doors {
 public:
  static Doors& Get() {
    static Doors* const doors = new Doors;
    return *doors;
  }

  void Add(const std::string& key, AcceptRules rules) {
    const std::lock_guard lock(mutex_);
    doors_.insert_or_assign(key, std::make_unique<Door>(std::move(rules)));
    if (!spare_.valid()) spare_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  void Remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    doors_.erase(key);
  }

  // As accept4: a descriptor, or -1 and errno.
  int Accept(int listener, sockaddr* address, socklen_t* size, int flags) {
    const int fd = System(listener, address, size, flags);
    if (fd < 0 && errno != EMFILE && errno != ENFILE) return fd;
    const int error = errno;
    const std::lock_guard lock(mutex_);
    const auto door = doors_.find(KeyOf(listener));
    if (door == doors_.end()) {
      errno = error;
      return fd;
    }
    if (fd >= 0 && door->second->Admits(fd)) return fd;
    if (fd >= 0) {
      close(fd);
    } else {
      TakeWithSpare(listener, flags);
      door->second->TurnAway("this process has no descriptor left");
    }
    errno = ECONNABORTED;
    return -1;
  }

 private:
  // Takes the connection with the descriptor that was kept for it, and closes it. Else it would
  // stay in the queue and the listener would be ready for ever.
  void TakeWithSpare(int listener, int flags) {
    spare_ = UniqueFd();
    const int fd = System(listener, nullptr, nullptr, flags);
    if (fd >= 0) close(fd);
    spare_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  static int System(int listener, sockaddr* address, socklen_t* size, int flags) {
    using Function = int (*)(int, sockaddr*, socklen_t*, int);
    // The next in line: libc's, or a sanitizer's.
    static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "accept4"));
    if (next != nullptr) return next(listener, address, size, flags);
    return static_cast<int>(syscall(SYS_accept4, listener, address, size, flags));
  }

  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Door>> doors_;  // by key
  UniqueFd spare_;
};

}  // namespace

AcceptGate::AcceptGate(const std::string& endpoint, AcceptRules rules) : key_(KeyOf(endpoint)) {
  Doors::Get().Add(key_, std::move(rules));
}
AcceptGate::AcceptGate(AcceptGate&& other) noexcept : key_(std::exchange(other.key_, {})) {}
AcceptGate::~AcceptGate() {
  if (!key_.empty()) Doors::Get().Remove(key_);
}

}  // namespace specd

// Stands before libc's accept4 for the whole program, libzmq's calls included.
extern "C" __attribute__((visibility("default"))) int accept4(int listener, sockaddr* address,
                                                              socklen_t* size, int flags) {
  return specd::Doors::Get().Accept(listener, address, size, flags);
}
