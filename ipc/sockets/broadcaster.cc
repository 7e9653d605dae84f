#include "ipc/sockets/broadcaster.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "ipc/sockets/zmtp.h"

namespace specd {
namespace {

// An entry of a queue beside the bytes of its message, and a prefix beside its two copies: what
// the containers take, rounded up.
constexpr size_t kEntryBytes = 64;
constexpr size_t kPrefixBytes = 256;

// Messages that follow one another are queued together up to this part of the pool.
constexpr size_t kPoolPart = 16;

// Turns of one subscriber before the others'.
constexpr int kTurnsMax = 8;
constexpr absl::Duration kInspection = absl::Seconds(1);

size_t CostOf(std::string_view prefix) { return 2 * prefix.size() + kPrefixBytes; }

// The sanitizer's check of the type opens a pipe, and fails where descriptors are used up.
__attribute__((no_sanitize("vptr"))) Subscriber* Of(ZmtpPeer* peer) {
  return static_cast<Subscriber*>(peer);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Broadcaster>> Broadcaster::Create(const std::string& endpoint,
                                                                 const BroadcastOptions& options) {
  std::unique_ptr<Broadcaster> made(new Broadcaster(options));
  if (absl::Status status = made->Listen(endpoint); !status.ok()) return status;
  return made;
}

Broadcaster::Broadcaster(const BroadcastOptions& options)
    : options_(options), subscriptions_(options.subscriptions) {}

absl::Status Broadcaster::Listen(const std::string& endpoint) {
  const auto take = [this](ZmtpPeer* peer, ZmtpInput kind, std::string_view body) {
    Take(kind, body, Of(peer));
    return absl::OkStatus();
  };
  absl::StatusOr<std::unique_ptr<PeerSet>> peers = PeerSet::Listen(
      endpoint,
      {.role = ZmtpRole::kPublisher,
       .accept = options_.accept,
       .handshake_max = options_.handshake_max,
       .inspection_interval = std::min(kInspection, options_.deaf_max),
       .on_trouble = options_.on_trouble},
      {.make = [] { return std::make_unique<Subscriber>(); },
       .take = take,
       .send = [this](ZmtpPeer* peer) { Flush(Of(peer)); },
       .inspect = [this](ZmtpPeer* peer, absl::Time now) { Inspect(now, Of(peer)); },
       .leave = [this](ZmtpPeer* peer) { Leave(Of(peer)); }});
  if (!peers.ok()) return peers.status();
  peers_ = *std::move(peers);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

Broadcaster::~Broadcaster() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  peers_->Ring();
  thread_.join();
}

void Broadcaster::Send(std::string_view topic, std::string_view payload, bool more_follow) {
  // Every subscription takes bytes of the pool, so an empty pool has no listeners.
  if (queued_bytes_ == 0 && unsent_.empty()) return;
  unsent_.push_back({std::string(topic), ZmtpMessage(topic, payload)});
  unsent_bytes_ += unsent_.back().bytes.size();
  // A batch is a small part of the pool, whose bytes it is not among yet.
  if (more_follow && unsent_bytes_ < options_.queued_bytes_max / kPoolPart) return;
  const absl::Cleanup clear = [this] {
    unsent_.clear();
    unsent_bytes_ = 0;
  };
  bool rings = false;
  {
    const std::lock_guard lock(mutex_);
    const bool was_idle = listed_.empty();
    for (Unsent& message : unsent_) Distribute(&message);
    rings = was_idle && !listed_.empty();
  }
  if (rings) peers_->Ring();
}

void Broadcaster::Distribute(Unsent* message) {
  subscriptions_.Find(message->topic, &found_);
  const size_t size_bytes = message->bytes.size() + kEntryBytes;
  WireMessage shared;
  for (Subscriber* subscriber : found_) {
    if (!HasRoom(*subscriber, size_bytes)) {
      Lose(subscriber);
      continue;
    }
    if (shared == nullptr) shared = MakeMessage(std::move(message->bytes));
    Push(shared, subscriber);
  }
}

BroadcastCounters Broadcaster::counters() const {
  const std::lock_guard lock(mutex_);
  BroadcastCounters counters = counters_;
  counters.disconnected = peers_->num_disconnected();
  return counters;
}

size_t Broadcaster::queued_bytes() const { return queued_bytes_; }

bool Broadcaster::HasRoom(const Subscriber& subscriber, size_t size_bytes) const {
  const size_t queued_bytes = queued_bytes_;
  return queued_bytes <= options_.queued_bytes_max &&
         subscriber.queued_bytes + size_bytes <= options_.queued_bytes_max - queued_bytes;
}

WireMessage Broadcaster::MakeMessage(std::string bytes) {
  return std::make_shared<const PooledFrames>(std::move(bytes), &queued_bytes_);
}

void Broadcaster::Push(WireMessage message, Subscriber* subscriber) {
  queued_bytes_ += kEntryBytes;
  subscriber->queued_bytes += message->bytes().size() + kEntryBytes;
  subscriber->queue.push_back(std::move(message));
  if (subscriber->is_listed) return;
  subscriber->is_listed = true;
  listed_.push_back(subscriber);
}

void Broadcaster::Pop(size_t sent_bytes, Subscriber* subscriber) {
  subscriber->is_losing = false;
  subscriber->front_sent_bytes += sent_bytes;
  while (!subscriber->queue.empty()) {
    const size_t size_bytes = subscriber->queue.front()->bytes().size();
    if (subscriber->front_sent_bytes < size_bytes) return;
    subscriber->front_sent_bytes -= size_bytes;
    subscriber->queued_bytes -= size_bytes + kEntryBytes;
    queued_bytes_ -= kEntryBytes;
    sent_.push_back(std::move(subscriber->queue.front()));
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
  const absl::Time end = PeerSet::Now() + options_.linger;
  while (HasQueued() && PeerSet::Now() < end) Step(options_.linger);
}

void Broadcaster::Step(absl::Duration timeout) {
  peers_->Step(timeout);
  SendListed();
  peers_->Sweep();
}

void Broadcaster::Take(ZmtpInput kind, std::string_view body, Subscriber* subscriber) {
  if (kind == ZmtpInput::kSubscribe) Subscribe(body, subscriber);
  if (kind == ZmtpInput::kCancel) Cancel(body, subscriber);
  if (kind == ZmtpInput::kPing) Answer(body, subscriber);
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
    if (sent < 0 && errno != EAGAIN) return peers_->Close(subscriber);
    if (sent > 0) {
      subscriber->full_since = absl::InfiniteFuture();
      {
        const std::lock_guard lock(mutex_);
        Pop(static_cast<size_t>(sent), subscriber);
      }
      sent_.clear();
    }
    if (sent < static_cast<ssize_t>(size_bytes)) return WaitForRoom(true, subscriber);
  }
  // It stays listed, and the others go first.
  const std::lock_guard lock(mutex_);
  if (listed_.empty()) peers_->Ring();
  listed_.push_back(subscriber);
}

// The pieces stay valid until they are popped, by the same thread.
size_t Broadcaster::Gather(Subscriber* subscriber, Pieces* pieces, size_t* size_bytes) {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  size_t skipped_bytes = subscriber->front_sent_bytes;
  for (const WireMessage& message : subscriber->queue) {
    if (count == kPiecesMax) break;
    const std::string_view rest = message->bytes().substr(skipped_bytes);
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
    subscriber->full_since = PeerSet::Now();
  }
  if (subscriber->waits_for_room == wanted) return;
  subscriber->waits_for_room = wanted;
  peers_->WatchRoom(wanted, subscriber);
}

void Broadcaster::Inspect(absl::Time now, Subscriber* subscriber) {
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
    peers_->Disconnect(
        fmt::format("it has read nothing for {}", absl::FormatDuration(options_.deaf_max)),
        subscriber);
  }
}

void Broadcaster::Leave(Subscriber* subscriber) {
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
}

bool Broadcaster::HasQueued() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(peers_->peers().begin(), peers_->peers().end(),
                     [](const auto& one) { return !Of(one.get())->queue.empty(); });
}

}  // namespace specd
