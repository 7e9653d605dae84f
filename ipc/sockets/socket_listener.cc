#include "ipc/sockets/socket_listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr std::string_view kTcp = "tcp://";
constexpr int kBacklog = 128;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::Status Failed(const std::string& endpoint, int error) {
  return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "", fmt::format("binding {}", endpoint), error);
}

absl::StatusOr<UniqueFd> ListenAt(const std::string& endpoint, const sockaddr* address,
                                  socklen_t size) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(fd.get(), address, size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return Failed(endpoint, errno);
  }
  return fd;
}

absl::StatusOr<UniqueFd> ListenOnPath(const std::string& endpoint) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  endpoint.substr(kIpc.size()).copy(address.sun_path, sizeof(address.sun_path) - 1);
  return ListenAt(endpoint, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

absl::StatusOr<UniqueFd> ListenOnPort(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::string port = endpoint.substr(colon + 1);
  if (port == "*") port = "0";
  addrinfo hints = {};
  hints.ai_family = host == "*" ? AF_INET : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host == "*" ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "",
                     fmt::format("binding {}: {}; name an address of this machine", endpoint,
                                 gai_strerror(error)));
  }
  const Addresses owner(found);
  return ListenAt(endpoint, found->ai_addr, found->ai_addrlen);
}

// tcp://HOST:PORT of the socket's own end.
std::string EndpointOf(int fd, std::string_view asked) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return std::string(asked);
  }
  return address.ss_family == AF_INET6 ? fmt::format("tcp://[{}]:{}", host, port)
                                       : fmt::format("tcp://{}:{}", host, port);
}

std::string NameOf(int fd, const sockaddr_storage& address, socklen_t size) {
  ucred peer = {};
  socklen_t peer_size = sizeof(peer);
  if (address.ss_family == AF_UNIX || size <= sizeof(sa_family_t)) {
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0
               ? fmt::format("pid {}", peer.pid)
               : "a process";
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  return getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                     sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0
             ? fmt::format("{} port {}", host, port)
             : "a machine";
}

}  // namespace

SocketListener::SocketListener(std::optional<InstanceLock> lock, UniqueFd fd, std::string endpoint,
                               const AcceptRules& rules)
    : lock_(std::move(lock)), gate_(rules), fd_(std::move(fd)), endpoint_(std::move(endpoint)) {}

absl::StatusOr<SocketListener> SocketListener::Listen(const std::string& endpoint,
                                                      const AcceptRules& rules) {
  std::optional<InstanceLock> lock;
  if (endpoint.starts_with(kIpc)) {
    absl::StatusOr<InstanceLock> taken =
        InstanceLock::Take(endpoint.substr(kIpc.size()), "endpoint");
    if (!taken.ok()) return taken.status();
    lock = *std::move(taken);
  }
  absl::StatusOr<UniqueFd> fd = lock.has_value() ? ListenOnPath(endpoint) : ListenOnPort(endpoint);
  if (!fd.ok()) return fd.status();
  std::string bound = lock.has_value() ? endpoint : EndpointOf(fd->get(), endpoint);
  return SocketListener(std::move(lock), *std::move(fd), std::move(bound), rules);
}

UniqueFd SocketListener::Accept(size_t num_connected, std::string* name) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  UniqueFd fd = gate_.Accept(fd_.get(), num_connected, &address, &size);
  if (!fd.valid()) return fd;
  *name = NameOf(fd.get(), address, size);
  const int one = 1;
  if (address.ss_family != AF_UNIX) {
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  return fd;
}

}  // namespace specd
