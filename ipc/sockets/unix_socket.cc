#include "ipc/sockets/unix_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

using SteadyClock = std::chrono::steady_clock;

absl::Status SocketError(std::string_view what) {
  return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "", what, errno);
}

// The steady clock: a change of the wall clock neither ends nor prolongs a wait.
SteadyClock::time_point DeadlineAfter(absl::Duration timeout) {
  const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  return SteadyClock::now() + absl::ToChronoNanoseconds(bounded);
}

int RemainingMs(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

// Returns true if the descriptor has one of the events, or is broken, which the next call reports.
absl::StatusOr<bool> WaitFor(int fd, short events, SteadyClock::time_point deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, RemainingMs(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return SocketError("poll");
  }
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kSocketPathMax || path.find('\0') != std::string::npos) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "path",
                     fmt::format("the socket path has {} bytes; a unix socket allows 1..{}, none "
                                 "of them 0. Use a shorter directory",
                                 path.size(), kSocketPathMax));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<PeerCredentials> CredentialsOf(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SocketError("SO_PEERCRED");
  }
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

absl::Status ConnectError(const std::string& path) {
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
      return MakeError(SPECD_ERROR_NOT_FOUND, "uri",
                       fmt::format("no socket at {}; start the daemon with --listen=unix:{}, or "
                                   "correct the path",
                                   path, path));
    case EACCES:
    case EPERM:
      return MakeError(SPECD_ERROR_PERMISSION, "uri",
                       fmt::format("this user may not open the socket {}; join the group that owns "
                                   "it, or run as its user",
                                   path));
    case ECONNREFUSED:
      if (struct stat found; stat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode)) {
        return MakeError(SPECD_ERROR_NOT_FOUND, "uri",
                         fmt::format("{} is {} and no socket; name the daemon's socket, such as "
                                     "unix:/run/specd/specd.sock",
                                     path, S_ISDIR(found.st_mode) ? "a directory" : "a file"));
      }
      return MakeError(
          SPECD_ERROR_DISCONNECTED, "uri",
          fmt::format("nobody listens at {}; the daemon has ended, start it again", path));
    case EPROTOTYPE:
      return MakeError(SPECD_ERROR_NOT_FOUND, "uri",
                       fmt::format("the socket at {} is not specd's: it has another type", path));
    case EAGAIN:
      return MakeError(
          SPECD_ERROR_DISCONNECTED, "uri",
          fmt::format("the daemon at {} does not accept connections; is it stopped?", path));
    default:
      return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "uri", fmt::format("connecting to {}", path),
                            errno);
  }
}

// connect() on a unix socket waits for room in the listener's queue for as long as a send would.
void SetSendTimeout(int fd, absl::Duration timeout) {
  const timeval value = absl::ToTimeval(timeout);
  SPECD_CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value)) == 0);
}

// Takes ownership of the descriptors of all control messages, even if the message is refused.
std::vector<UniqueFd> TakeFds(msghdr* message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

absl::StatusOr<UnixConnection> UnixConnection::Connect(const std::string& path,
                                                       absl::Duration timeout) {
  absl::StatusOr<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SocketError("socket");
  // A time of 0 would mean no limit.
  SetSendTimeout(fd.get(), std::clamp(timeout, absl::Milliseconds(1), absl::Hours(24)));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return ConnectError(path);
  }
  absl::StatusOr<PeerCredentials> peer = CredentialsOf(fd.get());
  if (!peer.ok()) return peer.status();
  return UnixConnection(std::move(fd), *peer);
}

absl::Status UnixConnection::Send(std::span<const uint8_t> bytes, std::span<const int> fds,
                                  absl::Duration timeout) {
  SPECD_CHECK(!bytes.empty() && fds.size() <= kMessageFdsMax);
  iovec data{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMessageFdsMax * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  const SteadyClock::time_point deadline = DeadlineAfter(timeout);
  while (true) {
    if (sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return absl::OkStatus();
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return SocketError("the peer is gone");
    absl::StatusOr<bool> ready = WaitFor(fd_.get(), POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) {
      return MakeError(SPECD_ERROR_TIMEOUT, "", "the peer does not read its messages");
    }
  }
}

absl::StatusOr<Received> UnixConnection::Receive(std::span<uint8_t> buffer,
                                                 std::vector<UniqueFd>* fds,
                                                 absl::Duration timeout) {
  fds->clear();
  iovec data{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMessageFdsMax * sizeof(int))> control = {};
  const SteadyClock::time_point deadline = DeadlineAfter(timeout);
  while (true) {
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) {
      if (errno == EINTR) continue;
      // The peer closed with unread messages of ours. This is a hang-up like any other.
      if (errno == ECONNRESET) return Received{ReceiveResult::kHangup, 0};
      if (errno != EAGAIN) return SocketError("recvmsg");
      absl::StatusOr<bool> ready = WaitFor(fd_.get(), POLLIN, deadline);
      if (!ready.ok()) return ready.status();
      if (!*ready) return Received{ReceiveResult::kTimeout, 0};
      continue;
    }
    std::vector<UniqueFd> received = TakeFds(&message);
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "fds",
                       fmt::format("a message brought more than {} descriptors, or this process "
                                   "has too many open files (ulimit -n)",
                                   kMessageFdsMax));
    }
    if ((message.msg_flags & MSG_TRUNC) != 0) {
      return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "message",
                       fmt::format("a message has more than {} bytes", buffer.size()));
    }
    if (size == 0) return Received{ReceiveResult::kHangup, 0};
    *fds = std::move(received);
    return Received{ReceiveResult::kMessage, static_cast<size_t>(size)};
  }
}

void UnixConnection::FinishSending() { (void)shutdown(fd_.get(), SHUT_WR); }

bool UnixConnection::PeerGone() const {
  pollfd entry{fd_.get(), POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

absl::StatusOr<UnixListener> UnixListener::Bind(const std::string& path, mode_t mode) {
  absl::StatusOr<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketError("socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return MakeErrnoError(errno == EACCES ? SPECD_ERROR_PERMISSION : SPECD_ERROR_INVALID_ARGUMENT,
                          "listen", fmt::format("the socket {} could not be made", path), errno);
  }
  // This comes before listen(), while every connect is still refused. So the mode has no gap.
  if (chmod(path.c_str(), mode) != 0) return SocketError("chmod");
  if (listen(fd.get(), SOMAXCONN) != 0) return SocketError("listen");
  return UnixListener(std::move(fd));
}

absl::StatusOr<std::optional<UnixConnection>> UnixListener::Accept(absl::Duration timeout) {
  const SteadyClock::time_point deadline = DeadlineAfter(timeout);
  while (true) {
    UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) {
      absl::StatusOr<PeerCredentials> peer = CredentialsOf(fd.get());
      if (!peer.ok()) return peer.status();
      return std::optional<UnixConnection>(UnixConnection(std::move(fd), *peer));
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) {
      return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "listen", "accepting an engine", errno);
    }
    absl::StatusOr<bool> ready = WaitFor(fd_.get(), POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return std::optional<UnixConnection>();
  }
}

}  // namespace specd
