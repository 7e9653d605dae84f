#include "ipc/sockets/broadcaster.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/zmtp.h"

namespace specd {
namespace {

// An entry of a queue beside the bytes of its message, and a prefix beside its two copies: what
// the containers take, rounded up.
constexpr size_t kEntryBytes = 64;
constexpr size_t kPrefixBytes = 256;

constexpr size_t kReadBytes = 16 * 1024;
// Turns of one subscriber before the others'.
constexpr int kTurnsMax = 8;
constexpr int kEventsMax = 64;
constexpr absl::Duration kInspection = absl::Seconds(1);

size_t CostOf(std::string_view prefix) { return 2 * prefix.size() + kPrefixBytes; }

bool Watch(int poller, int operation, int fd, uint32_t events, void* who) {
  epoll_event event = {.events = events, .data = {.ptr = who}};
  return epoll_ctl(poller, operation, fd, &event) == 0;
}

// A set clock or a suspended machine ends no subscriber.
absl::Time Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Broadcaster>> Broadcaster::Create(const std::string& endpoint,
                                                                 const BroadcastOptions& options) {
  absl::StatusOr<StreamListener> listener = StreamListener::Listen(endpoint, options.accept);
  if (!listener.ok()) return listener.status();
  UniqueFd poller(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller.valid() || !bell.valid()) {
    return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "", fmt::format("serving {}", endpoint), errno);
  }
  return std::unique_ptr<Broadcaster>(
      new Broadcaster(*std::move(listener), std::move(poller), std::move(bell), options));
}

Broadcaster::Broadcaster(StreamListener listener, UniqueFd poller, UniqueFd bell,
                         const BroadcastOptions& options)
    : options_(options),
      listener_(std::move(listener)),
      poller_(std::move(poller)),
      bell_(std::move(bell)),
      subscriptions_(options.subscriptions) {
  Watch(poller_.get(), EPOLL_CTL_ADD, bell_.get(), EPOLLIN, nullptr);
  Watch(poller_.get(), EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, &listener_);
  thread_ = std::thread([this] { Run(); });
}

Broadcaster::~Broadcaster() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Ring();
  thread_.join();
  while (!subscribers_.empty()) Close(subscribers_.back().get());
}

void Broadcaster::Send(std::string_view topic, std::string_view payload) {
  const std::lock_guard lock(mutex_);
  subscriptions_.Find(topic, &found_);
  const bool was_idle = listed_.empty();
  WireMessage message;
  for (Subscriber* subscriber : found_) {
    if (!HasRoom(*subscriber, topic.size() + payload.size() + kEntryBytes)) {
      Lose(subscriber);
      continue;
    }
    if (message == nullptr) message = MakeMessage(ZmtpMessage(topic, payload));
    Push(message, subscriber);
  }
  if (was_idle && !listed_.empty()) Ring();
}

BroadcastCounters Broadcaster::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

size_t Broadcaster::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

bool Broadcaster::HasRoom(const Subscriber& subscriber, size_t size_bytes) const {
  return queued_bytes_ <= options_.queued_bytes_max &&
         subscriber.queued_bytes + size_bytes <= options_.queued_bytes_max - queued_bytes_;
}

WireMessage Broadcaster::MakeMessage(std::string text) {
  queued_bytes_ += text.size();
  const auto give_back = [this](const std::string* message) {
    queued_bytes_ -= message->size();
    delete message;
  };
  return WireMessage(new std::string(std::move(text)), give_back);
}

void Broadcaster::Push(WireMessage message, Subscriber* subscriber) {
  queued_bytes_ += kEntryBytes;
  subscriber->queued_bytes += message->size() + kEntryBytes;
  subscriber->queue.push_back(std::move(message));
  if (subscriber->is_listed) return;
  subscriber->is_listed = true;
  listed_.push_back(subscriber);
}

void Broadcaster::Pop(size_t sent_bytes, Subscriber* subscriber) {
  subscriber->is_losing = false;
  subscriber->front_sent_bytes += sent_bytes;
  while (!subscriber->queue.empty()) {
    const size_t size_bytes = subscriber->queue.front()->size();
    if (subscriber->front_sent_bytes < size_bytes) return;
    subscriber->front_sent_bytes -= size_bytes;
    subscriber->queued_bytes -= size_bytes + kEntryBytes;
    queued_bytes_ -= kEntryBytes;
    subscriber->queue.pop_front();
  }
}

void Broadcaster::Lose(Subscriber* subscriber) {
  subscriber->is_losing = true;
  ++subscriber->lost_messages;
  ++counters_.lost_messages;
}

void Broadcaster::Subscribe(std::string_view prefix, Subscriber* subscriber) {
  if (subscriber->prefixes.contains(prefix)) return;
  const bool is_admitted = subscriptions_.Admits(prefix, *subscriber);
  const std::lock_guard lock(mutex_);
  if (!is_admitted || !HasRoom(*subscriber, CostOf(prefix))) {
    ++subscriber->refused_subscriptions;
    ++counters_.refused_subscriptions;
    return;
  }
  subscriptions_.Add(prefix, subscriber);
  subscriber->queued_bytes += CostOf(prefix);
  queued_bytes_ += CostOf(prefix);
}

void Broadcaster::Cancel(std::string_view prefix, Subscriber* subscriber) {
  if (!subscriber->prefixes.contains(prefix)) return;
  const std::lock_guard lock(mutex_);
  subscriptions_.Remove(prefix, subscriber);
  subscriber->queued_bytes -= CostOf(prefix);
  queued_bytes_ -= CostOf(prefix);
}

void Broadcaster::Run() {
  const auto stopping = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  while (!stopping()) Step(std::min(kInspection, options_.deaf_max));
  const absl::Time end = Now() + options_.linger;
  while (HasQueued() && Now() < end) Step(options_.linger);
}

void Broadcaster::Step(absl::Duration timeout) {
  std::array<epoll_event, kEventsMax> events;
  const int num_events = epoll_wait(poller_.get(), events.data(), kEventsMax,
                                    static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  for (const epoll_event& event : std::span(events.data(), std::max(num_events, 0))) {
    if (event.data.ptr == nullptr) {
      eventfd_t rings = 0;
      eventfd_read(bell_.get(), &rings);
    } else if (event.data.ptr == &listener_) {
      Admit();
    } else {
      auto* const subscriber = static_cast<Subscriber*>(event.data.ptr);
      if ((event.events & EPOLLOUT) != 0) Flush(subscriber);
      if ((event.events & ~EPOLLOUT) != 0) Read(subscriber);
    }
  }
  SendListed();
  closed_.clear();
  if (const absl::Time now = Now(); now >= next_inspection_) {
    next_inspection_ = now + std::min(kInspection, options_.deaf_max);
    Inspect(now);
  }
}

void Broadcaster::Admit() {
  auto subscriber = std::make_unique<Subscriber>();
  subscriber->fd = listener_.Accept(&subscriber->name);
  if (!subscriber->fd.valid()) return;
  subscriber->accepted_at = Now();
  if (!Watch(poller_.get(), EPOLL_CTL_ADD, subscriber->fd.get(), EPOLLIN, subscriber.get())) return;
  const std::lock_guard lock(mutex_);
  Push(MakeMessage(ZmtpHello()), subscriber.get());
  subscribers_.push_back(std::move(subscriber));
}

void Broadcaster::Read(Subscriber* subscriber) {
  if (!subscriber->fd.valid()) return;
  std::array<char, kReadBytes> buffer;
  const ssize_t size = recv(subscriber->fd.get(), buffer.data(), buffer.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return Close(subscriber);
  const absl::Status status = subscriber->reader.Read({buffer.data(), static_cast<size_t>(size)},
                                                      [&](ZmtpInput kind, std::string_view body) {
                                                        if (kind == ZmtpInput::kSubscribe)
                                                          Subscribe(body, subscriber);
                                                        if (kind == ZmtpInput::kCancel)
                                                          Cancel(body, subscriber);
                                                        if (kind == ZmtpInput::kPing)
                                                          Answer(body, subscriber);
                                                      });
  if (!status.ok()) {
    Disconnect(std::string_view(status.message().data(), status.message().size()), subscriber);
  }
}

// Where a message waits, it is an answer as well.
void Broadcaster::Answer(std::string_view ping, Subscriber* subscriber) {
  const std::lock_guard lock(mutex_);
  if (subscriber->queue.empty()) Push(MakeMessage(ZmtpPong(ping)), subscriber);
}

void Broadcaster::SendListed() {
  {
    const std::lock_guard lock(mutex_);
    sending_.swap(listed_);
  }
  for (Subscriber* subscriber : sending_) Flush(subscriber);
  sending_.clear();
}

void Broadcaster::Flush(Subscriber* subscriber) {
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    if (!subscriber->fd.valid()) return;
    Pieces pieces;
    size_t size_bytes = 0;
    const size_t count = Gather(subscriber, &pieces, &size_bytes);
    if (count == 0) return WaitForRoom(false, subscriber);
    msghdr header = {};
    header.msg_iov = pieces.data();
    header.msg_iovlen = count;
    const ssize_t sent = sendmsg(subscriber->fd.get(), &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return Close(subscriber);
    if (sent > 0) {
      subscriber->full_since = absl::InfiniteFuture();
      const std::lock_guard lock(mutex_);
      Pop(static_cast<size_t>(sent), subscriber);
    }
    if (sent < static_cast<ssize_t>(size_bytes)) return WaitForRoom(true, subscriber);
  }
  // It stays listed, and the others go first.
  const std::lock_guard lock(mutex_);
  if (listed_.empty()) Ring();
  listed_.push_back(subscriber);
}

// The pieces stay valid until they are popped, by the same thread.
size_t Broadcaster::Gather(Subscriber* subscriber, Pieces* pieces, size_t* size_bytes) {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  size_t skipped_bytes = subscriber->front_sent_bytes;
  for (const WireMessage& message : subscriber->queue) {
    if (count == kPiecesMax) break;
    const std::string_view rest = std::string_view(*message).substr(skipped_bytes);
    (*pieces)[count++] = {.iov_base = const_cast<char*>(rest.data()), .iov_len = rest.size()};
    *size_bytes += rest.size();
    skipped_bytes = 0;
  }
  if (count == 0) subscriber->is_listed = false;
  return count;
}

void Broadcaster::WaitForRoom(bool wanted, Subscriber* subscriber) {
  if (!wanted) subscriber->full_since = absl::InfiniteFuture();
  if (wanted && subscriber->full_since == absl::InfiniteFuture()) {
    subscriber->full_since = Now();
  }
  if (subscriber->waits_for_room == wanted) return;
  subscriber->waits_for_room = wanted;
  Watch(poller_.get(), EPOLL_CTL_MOD, subscriber->fd.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN,
        subscriber);
}

void Broadcaster::Inspect(absl::Time now) {
  for (size_t i = subscribers_.size(); i-- > 0;) {
    Subscriber* const subscriber = subscribers_[i].get();
    bool is_losing = false;
    {
      const std::lock_guard lock(mutex_);
      is_losing = subscriber->is_losing;
    }
    const uint64_t refused = subscriber->refused_subscriptions;
    if (refused > 0 && !std::exchange(subscriber->told_of_refused, true)) {
      options_.on_trouble(fmt::format(
          "{}: {} subscriptions are refused: a subscription is the beginning of a topic, a "
          "subscriber may have {}, and all of them must fit beside what waits for subscribers",
          subscriber->name, refused, options_.subscriptions.prefixes_max));
    }
    if (is_losing && !std::exchange(subscriber->told_of_lost, true)) {
      options_.on_trouble(fmt::format("{} reads too slowly and loses messages", subscriber->name));
    }
    if (is_losing && now - subscriber->full_since >= options_.deaf_max) {
      Disconnect(fmt::format("it has read nothing for {}", absl::FormatDuration(options_.deaf_max)),
                 subscriber);
    } else if (!subscriber->reader.ready() &&
               now - subscriber->accepted_at >= options_.handshake_max) {
      Disconnect("it has not said what it is", subscriber);
    }
  }
  closed_.clear();
}

void Broadcaster::Disconnect(std::string_view why, Subscriber* subscriber) {
  options_.on_trouble(fmt::format("{} is disconnected: {}", subscriber->name, why));
  Close(subscriber);
  const std::lock_guard lock(mutex_);
  ++counters_.disconnected;
}

void Broadcaster::Close(Subscriber* subscriber) {
  if (!subscriber->fd.valid()) return;
  subscriber->fd.Reset();  // epoll forgets it
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& prefix : subscriber->prefixes) queued_bytes_ -= CostOf(prefix);
    subscriptions_.RemoveAll(subscriber);
    queued_bytes_ -= subscriber->queue.size() * kEntryBytes;
    subscriber->queue.clear();
    std::erase(listed_, subscriber);
  }
  if (subscriber->lost_messages + subscriber->refused_subscriptions > 0) {
    options_.on_trouble(fmt::format("{} has gone: {} messages lost, {} subscriptions refused",
                                    subscriber->name, subscriber->lost_messages,
                                    subscriber->refused_subscriptions));
  }
  const auto at = std::find_if(subscribers_.begin(), subscribers_.end(),
                               [&](const auto& one) { return one.get() == subscriber; });
  closed_.push_back(std::move(*at));
  subscribers_.erase(at);
}

bool Broadcaster::HasQueued() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(subscribers_.begin(), subscribers_.end(),
                     [](const auto& one) { return !one->queue.empty(); });
}

void Broadcaster::Ring() { eventfd_write(bell_.get(), 1); }

}  // namespace specd
