// Publisher: the publisher thread's work. Takes the sessions' events, publishes them as token
// batches over ZeroMQ, and carries the text side's aborts back to the sessions.
//
// It exists so that no send ever happens on the verify thread. One thread calls Run (or Step);
// TextSideAlive and Stop may be called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/clock.h"
#include "daemon/session_list.h"
#include "ipc/token_event.h"
#include "ipc/zmq_socket.h"

namespace specd {

class Publisher {
 public:
  struct Options {
    SessionList* sessions = nullptr;
    Clock* clock = nullptr;
    ZmqContext* context = nullptr;
    uint64_t epoch = 0;
    std::vector<std::string> tokens_endpoints;  // to bind
    std::vector<std::string> aborts_endpoints;  // to bind
  };
  static absl::StatusOr<std::unique_ptr<Publisher>> Create(const Options& options);

  // Publishes what is there and applies the aborts that have come; true if there was anything.
  bool Step();

  // Until Stop; then publishes the rest.
  void Run();
  void Stop() { stop_.store(true, std::memory_order_relaxed); }

  // Has a detokenizer said within the last seconds that it is there?
  bool TextSideAlive() const;

 private:
  // Who is behind a stream's number.
  struct Target {
    std::weak_ptr<Session> session;
    SequenceHandle sequence = 0;
  };

  Publisher(const Options& options, ZmqSocket tokens, ZmqSocket aborts);

  void Drain(const std::shared_ptr<Session>& session);
  // Takes ended sessions off the list, and frees those that no other thread looks at any more:
  // their memory is unmapped here and not on the verify thread.
  void Retire();
  void Add(const std::shared_ptr<Session>& session, const StreamEvent& event);
  void Remember(const std::shared_ptr<Session>& session, const StreamEvent& event);
  void SendBatch();
  bool ReceiveAborts(absl::Duration timeout);
  void Apply(const AbortRequest& request);

  const Options options_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> text_side_seen_ns_{INT64_MIN};

  // Owned by the publisher thread.
  ZmqSocket tokens_;
  ZmqSocket aborts_;
  uint64_t version_ = 0;
  SessionList::Snapshot snapshot_;
  SessionList::Snapshot retired_;
  absl::flat_hash_map<uint64_t, Target> targets_;
  std::deque<uint64_t> ended_streams_;  // oldest first; their targets are forgotten in this order
  TokenBatch batch_;
  std::string buffer_;
  std::vector<std::string> frames_;
};

}  // namespace specd
