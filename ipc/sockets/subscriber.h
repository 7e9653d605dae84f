// Subscriber is one connection of a Broadcaster: what it asked for, and the messages that wait.
//
// Plain data. The broadcaster's thread owns one half of it, and a mutex guards the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "ipc/sockets/peer_set.h"

namespace specd {

// The frames of a message, shared by the queues that hold it. Its bytes leave the pool of a
// broadcaster with the last of them.
class PooledFrames {
 public:
  PooledFrames(std::string bytes, std::atomic<size_t>* pool_bytes)
      : bytes_(std::move(bytes)), pool_bytes_(pool_bytes) {
    pool_bytes_->fetch_add(bytes_.size(), std::memory_order_relaxed);
  }
  ~PooledFrames() { pool_bytes_->fetch_sub(bytes_.size(), std::memory_order_relaxed); }
  PooledFrames(const PooledFrames&) = delete;
  PooledFrames& operator=(const PooledFrames&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  const std::string bytes_;
  std::atomic<size_t>* const pool_bytes_;
};
using WireMessage = std::shared_ptr<const PooledFrames>;

struct Subscriber : ZmtpPeer {
  Subscriber() : ZmtpPeer(ZmtpRole::kPublisher) {}

  // Owned by the broadcaster's thread.
  absl::Time full_since = absl::InfiniteFuture();  // the socket took its last byte then
  bool waits_for_room = false;                     // epoll reports when the socket takes bytes
  bool told_of_lost = false;
  bool told_of_refused = false;
  std::set<std::string, std::less<>> prefixes = {};
  uint64_t refused_subscriptions = 0;

  // Guarded by the broadcaster's mutex.
  std::deque<WireMessage> queue = {};
  size_t queued_bytes = 0;      // of the queue and of the prefixes
  size_t front_sent_bytes = 0;  // of the first message
  bool is_listed = false;       // among those that have something to send
  uint64_t matched_by = 0;      // the number of the last message that it asked for
  bool is_losing = false;       // since the socket took its last byte
  uint64_t lost_messages = 0;
};

}  // namespace specd
