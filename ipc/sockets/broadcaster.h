// Broadcaster sends messages to the subscribers of an endpoint, and bounds what they can cost.
//
// It speaks to ZeroMQ's SUB sockets over ipc:// and tcp:// (zmtp.h). libzmq's own PUB keeps every
// prefix that a peer sends, and counts the messages that wait for a peer, not their bytes. Neither
// can be bounded from outside, so this class takes its place (docs/decisions/039).
//
// All queues share one pool of bytes. A message waits for a subscriber if the subscriber's queue is
// then no larger than what the pool has left (Choudhury and Hahne, "Dynamic queue length
// thresholds for shared-memory packet switches", 1998). One subscriber that reads nothing thus gets
// half of the pool, and n of them leave 1/(n+1) to those who read. A message that finds no room is
// lost for that subscriber alone. A subscriber that loses messages and takes no byte for
// `deaf_max` is disconnected.
//
// One thread calls Send at a time; a thread of the object moves the bytes.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/sockets/accept_gate.h"
#include "ipc/sockets/peer_set.h"
#include "ipc/sockets/subscriptions.h"

namespace specd {

struct BroadcastOptions {
  AcceptRules accept = {};
  Subscriptions::Rules subscriptions = {};
  size_t queued_bytes_max = size_t{64} << 20;  // the pool: messages and subscriptions
  absl::Duration deaf_max = absl::Seconds(10);
  absl::Duration handshake_max = absl::Seconds(30);
  absl::Duration linger = absl::Milliseconds(200);  // how long the destructor still sends
  // Called on the broadcaster's thread with a sentence about one subscriber: once if it loses
  // messages, once if a subscription is refused, and when it is disconnected or leaves after that.
  std::function<void(std::string_view what)> on_trouble = [](std::string_view) {};
};

// Sums since construction.
struct BroadcastCounters {
  uint64_t lost_messages = 0;  // each subscriber's own
  uint64_t refused_subscriptions = 0;
  uint64_t disconnected = 0;  // because they were deaf, or no subscribers
};

class Broadcaster {
 public:
  static absl::StatusOr<std::unique_ptr<Broadcaster>> Create(const std::string& endpoint,
                                                             const BroadcastOptions& options);
  ~Broadcaster();
  Broadcaster(const Broadcaster&) = delete;
  Broadcaster& operator=(const Broadcaster&) = delete;

  // Queues the message for those who subscribed to its topic. Waits for no peer. If more messages
  // follow at once, this one waits for the last of them, or for a sixteenth of the pool.
  void Send(std::string_view topic, std::string_view payload, bool more_follow = false);

  const std::string& endpoint() const { return peers_->endpoint(); }
  BroadcastCounters counters() const;
  size_t queued_bytes() const;  // of the pool

 private:
  static constexpr size_t kPiecesMax = 64;
  using Pieces = std::array<iovec, kPiecesMax>;

  // A message that no queue has yet.
  struct Unsent {
    std::string topic;
    std::string bytes;
  };

  explicit Broadcaster(const BroadcastOptions& options);
  absl::Status Listen(const std::string& endpoint);

  // ---- under the mutex
  bool HasRoom(const Subscriber& subscriber, size_t size_bytes) const;
  void Distribute(Unsent* message);
  WireMessage MakeMessage(std::string bytes);
  void Push(WireMessage message, Subscriber* subscriber);
  // Moves the messages that are sent to sent_.
  void Pop(size_t sent_bytes, Subscriber* subscriber);
  void Lose(Subscriber* subscriber);

  // ---- on the thread
  void Run();
  void Step(absl::Duration timeout);
  void Take(ZmtpInput kind, std::string_view body, Subscriber* subscriber);
  void Subscribe(std::string_view prefix, Subscriber* subscriber);
  void Cancel(std::string_view prefix, Subscriber* subscriber);
  void Answer(std::string_view ping, Subscriber* subscriber);
  void SendListed();
  // Sends what waits, as far as the socket takes it.
  void Flush(Subscriber* subscriber);
  size_t Gather(Subscriber* subscriber, Pieces* pieces, size_t* size_bytes);
  void WaitForRoom(bool wanted, Subscriber* subscriber);
  // Looks at the subscriber's times, and tells what it lost and what was refused.
  void Inspect(absl::Time now, Subscriber* subscriber);
  void Leave(Subscriber* subscriber);
  bool HasQueued() const;

  const BroadcastOptions options_;
  std::vector<Unsent> unsent_;        // owned by the thread that sends
  size_t unsent_bytes_ = 0;           // owned by it too
  std::vector<Subscriber*> sending_;  // owned by the broadcaster's thread
  std::vector<WireMessage> sent_;     // freed without the mutex, by the same thread

  mutable std::mutex mutex_;
  Subscriptions subscriptions_;
  std::vector<Subscriber*> found_;        // of one Send
  std::vector<Subscriber*> listed_;       // have something to send
  std::atomic<size_t> queued_bytes_ = 0;  // messages leave it without the mutex
  BroadcastCounters counters_;
  bool stopping_ = false;

  // The last: they use the others.
  std::unique_ptr<PeerSet> peers_;
  std::thread thread_;
};

}  // namespace specd
