#include "ipc/sockets/accept_gate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ipc/base/descriptors.h"

namespace specd {
namespace {

UniqueFd Spare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

AcceptGate::AcceptGate(AcceptRules rules) : rules_(std::move(rules)), spare_(Spare()) {}

UniqueFd AcceptGate::Accept(int listener, size_t num_connected, sockaddr_storage* address,
                            socklen_t* size) {
  constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  UniqueFd fd(accept4(listener, reinterpret_cast<sockaddr*>(address), size, kFlags));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
    spare_ = UniqueFd();
    UniqueFd(accept4(listener, nullptr, nullptr, kFlags)).Reset();
    spare_ = Spare();
    rules_.on_turned_away("this process has no descriptor left");
  }
  return fd.valid() && Admits(fd.get(), num_connected) ? std::move(fd) : UniqueFd();
}

bool AcceptGate::Admits(int fd, size_t num_connected) const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (IsReservedFrom(Peer::kSubscriber, fd)) {
    rules_.on_turned_away("this process has too many open files");
    // A socket of another family has no such peer: it tells the user -1.
  } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
             peer.uid != static_cast<uid_t>(-1) && !Knows(peer.uid)) {
    rules_.on_turned_away(fmt::format("uid {} (pid {}) is not allowed", peer.uid, peer.pid));
  } else if (num_connected >= rules_.connections_max) {
    rules_.on_turned_away(fmt::format("{} are connected, as many as may be", num_connected));
  } else {
    return true;
  }
  return false;
}

bool AcceptGate::Knows(uint32_t uid) const {
  return uid == geteuid() ||
         std::find(rules_.uids.begin(), rules_.uids.end(), uid) != rules_.uids.end();
}

}  // namespace specd
