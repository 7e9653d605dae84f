#include "daemon/base/service_manager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int kFirstFd = 3;  // SD_LISTEN_FDS_START

// The value of a variable, which children must not see.
std::string TakeVariable(const char* name) {
  const char* value = getenv(name);
  std::string taken = value == nullptr ? "" : value;
  unsetenv(name);
  return taken;
}

int OptionOf(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

std::string PathOf(int fd) {
  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return std::string(address.sun_path, strnlen(address.sun_path, sizeof(address.sun_path)));
}

absl::Status Refused(std::string_view what, const std::string& path) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "listen",
                   fmt::format("listen: the service manager passes {}; give it one socket, "
                               "ListenSequentialPacket={}",
                               what, path));
}

}  // namespace

absl::StatusOr<UniqueFd> TakeListeningSocket(const std::string& path) {
  const std::string pid = TakeVariable("LISTEN_PID");
  const std::string count = TakeVariable("LISTEN_FDS");
  TakeVariable("LISTEN_FDNAMES");
  if (pid != fmt::format("{}", getpid()) || count.empty()) return UniqueFd();
  int num_fds = 0;
  if (!absl::SimpleAtoi(count, &num_fds) || num_fds != 1) {
    return Refused(fmt::format("LISTEN_FDS = {} sockets", count), path);
  }
  UniqueFd fd(kFirstFd);
  if (OptionOf(fd.get(), SO_DOMAIN) != AF_UNIX || OptionOf(fd.get(), SO_TYPE) != SOCK_SEQPACKET ||
      OptionOf(fd.get(), SO_ACCEPTCONN) != 1) {
    return Refused("a descriptor that is no listening unix socket of type SOCK_SEQPACKET", path);
  }
  if (PathOf(fd.get()) != path) {
    return Refused(fmt::format("the socket {}, which --listen does not name", PathOf(fd.get())),
                   path);
  }
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
    return Refused("a socket that takes no flags", path);
  }
  return fd;
}

void NotifyServiceManager(std::string_view state) {
  const char* const name = getenv("NOTIFY_SOCKET");
  if (name == nullptr || (name[0] != '/' && name[0] != '@')) return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string_view path = name;
  if (path.size() >= sizeof(address.sun_path)) return;
  std::copy(path.begin(), path.end(), address.sun_path);
  if (path.front() == '@') address.sun_path[0] = '\0';  // an abstract name
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  // The service manager then waits in vain, and says so itself.
  if (fd.valid()) {
    (void)sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), size);
  }
}

}  // namespace specd
