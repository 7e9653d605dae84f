#include "ipc/sockets/peer_set.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kReadBytes = 16 * 1024;
constexpr int kEventsMax = 64;

bool Watch(int poller, int operation, int fd, uint32_t events, void* who) {
  epoll_event event = {.events = events, .data = {.ptr = who}};
  return epoll_ctl(poller, operation, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerSet>> PeerSet::Listen(const std::string& endpoint,
                                                         const Options& options,
                                                         Handlers handlers) {
  absl::StatusOr<SocketListener> listener = SocketListener::Listen(endpoint, options.accept);
  if (!listener.ok()) return listener.status();
  UniqueFd poller(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller.valid() || !bell.valid()) {
    return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "", fmt::format("serving {}", endpoint), errno);
  }
  return std::unique_ptr<PeerSet>(new PeerSet(*std::move(listener), std::move(poller),
                                              std::move(bell), options, std::move(handlers)));
}

PeerSet::PeerSet(SocketListener listener, UniqueFd poller, UniqueFd bell, const Options& options,
                 Handlers handlers)
    : options_(options),
      handlers_(std::move(handlers)),
      listener_(std::move(listener)),
      poller_(std::move(poller)),
      bell_(std::move(bell)) {
  Watch(poller_.get(), EPOLL_CTL_ADD, bell_.get(), EPOLLIN, nullptr);
  Watch(poller_.get(), EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, &listener_);
}

PeerSet::~PeerSet() {
  while (!peers_.empty()) Close(peers_.back().get());
}

absl::Time PeerSet::Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

void PeerSet::Step(absl::Duration timeout) {
  std::array<epoll_event, kEventsMax> events;
  const int num_events =
      epoll_wait(poller_.get(), events.data(), std::min(options_.turns_max, kEventsMax),
                 static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  for (const epoll_event& event : std::span(events.data(), std::max(num_events, 0))) {
    if (event.data.ptr == nullptr) {
      eventfd_t rings = 0;
      eventfd_read(bell_.get(), &rings);
    } else if (event.data.ptr == &listener_) {
      Admit();
    } else {
      auto* const peer = static_cast<ZmtpPeer*>(event.data.ptr);
      if ((event.events & EPOLLOUT) != 0) handlers_.send(peer);
      if ((event.events & ~EPOLLOUT) != 0) Read(peer);
    }
  }
}

void PeerSet::Sweep() {
  closed_.clear();
  const absl::Time now = Now();
  if (now < next_inspection_) return;
  next_inspection_ = now + options_.inspection_interval;
  for (size_t i = peers_.size(); i-- > 0;) {
    ZmtpPeer* const peer = peers_[i].get();
    if (!peer->reader.ready() && now - peer->accepted_at >= options_.handshake_max) {
      Disconnect("it has not said what it is", peer);
    } else {
      handlers_.inspect(peer, now);
    }
  }
  closed_.clear();
}

void PeerSet::Ring() { eventfd_write(bell_.get(), 1); }

void PeerSet::WatchRoom(bool wanted, ZmtpPeer* peer) {
  Watch(poller_.get(), EPOLL_CTL_MOD, peer->fd.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, peer);
}

void PeerSet::Admit() {
  std::string name;
  UniqueFd fd = listener_.Accept(peers_.size(), &name);
  if (!fd.valid()) return;
  std::unique_ptr<ZmtpPeer> peer = handlers_.make();
  peer->fd = std::move(fd);
  peer->name = std::move(name);
  peer->accepted_at = Now();
  // A new connection has room for so little.
  const std::string hello = ZmtpHello(options_.role);
  const ssize_t sent = send(peer->fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(hello.size())) return;
  if (!Watch(poller_.get(), EPOLL_CTL_ADD, peer->fd.get(), EPOLLIN, peer.get())) return;
  peers_.push_back(std::move(peer));
}

void PeerSet::Read(ZmtpPeer* peer) {
  if (!peer->fd.valid()) return;
  std::array<char, kReadBytes> buffer;
  const ssize_t size = recv(peer->fd.get(), buffer.data(), buffer.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return Close(peer);
  absl::Status taken;
  const absl::Status read = peer->reader.Read({buffer.data(), static_cast<size_t>(size)},
                                              [&](ZmtpInput kind, std::string_view body) {
                                                if (taken.ok())
                                                  taken = handlers_.take(peer, kind, body);
                                              });
  const absl::Status& status = taken.ok() ? read : taken;
  if (!status.ok()) Disconnect({status.message().data(), status.message().size()}, peer);
}

void PeerSet::Disconnect(std::string_view why, ZmtpPeer* peer) {
  options_.on_trouble(fmt::format("{} is disconnected: {}", peer->name, why));
  Close(peer);
  num_disconnected_.fetch_add(1, std::memory_order_relaxed);
}

void PeerSet::Close(ZmtpPeer* peer) {
  if (!peer->fd.valid()) return;
  // A forked process may have the connection too, and epoll forgets it with the last of them.
  Watch(poller_.get(), EPOLL_CTL_DEL, peer->fd.get(), 0, nullptr);
  peer->fd.Reset();
  handlers_.leave(peer);
  const auto at = std::find_if(peers_.begin(), peers_.end(),
                               [&](const auto& one) { return one.get() == peer; });
  closed_.push_back(std::move(*at));
  peers_.erase(at);
}

}  // namespace specd
