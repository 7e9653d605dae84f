// Publisher publishes the sessions' events as token batches over ZeroMQ, answers readers that ask
// for events again, and carries aborts back to the sessions.
//
// The publisher exists so that the verify thread never sends. One thread calls Run (or Step); any
// thread may call TextSideAlive and Stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/awake_time.h"
#include "daemon/base/clock.h"
#include "daemon/metrics/meters.h"
#include "daemon/session/session_list.h"
#include "daemon/text/kept_streams.h"
#include "daemon/text/stream_names.h"
#include "daemon/text/text_sides.h"
#include "ipc/events/token_event.h"
#include "ipc/sockets/publish_socket.h"
#include "ipc/sockets/pull_socket.h"
#include "ipc/sockets/reply_socket.h"
#include "ipc/sockets/wait_set.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class Publisher {
 public:
  struct Options {
    SessionList* sessions = nullptr;
    Clock* clock = nullptr;
    ZmqContext* context = nullptr;
    uint64_t epoch = 0;
    std::vector<std::string> tokens_endpoints;        // to bind
    std::vector<std::string> aborts_endpoints;        // to bind
    BroadcastOptions subscribers = {};                // of the tokens endpoints
    PullOptions text_sides = {};                      // of the aborts endpoints
    std::vector<std::string> ask_endpoints;           // to bind
    ReplyOptions askers = {};                         // of the ask endpoints
    KeepLimits keep = {};                             // what they may ask for
    std::map<std::string, uint64_t> tokenizers = {};  // hashes, by the name of the model
    // True if the text side is another process, which may end or be replaced. If none comes within
    // the grace, streams whose stop strings no text side looks for are aborted.
    bool watch_text_side = false;
    int64_t text_grace_ns = 30'000'000'000;
    PublisherMeters* meters = nullptr;  // which outlive the publisher; null: those of its own
  };
  static absl::StatusOr<std::unique_ptr<Publisher>> Create(const Options& options);

  // Publishes the events that have come, applies the aborts and answers the asks that have come;
  // true if there were any.
  bool Step();

  // Steps until Stop; then publishes the rest.
  void Run();
  // There may be events. From any thread; what it costs is WaitSet's.
  void Ring() { waits_->Ring(); }
  void Stop() { stop_.store(true, std::memory_order_relaxed); }

  // True if the detokenizers of all shards have reported within the last seconds in which the
  // publisher looked.
  bool TextSideAlive() const { return text_sides_.AreAlive(); }

 private:
  // The session and sequence of a stream's number.
  struct Target {
    std::weak_ptr<Session> session;
    SequenceHandle sequence = 0;
    std::string request_id;
    bool needs_text_side = false;  // to find its stop strings
    bool ended = false;
    bool settled = false;  // the text side has had its last word, or will say none
  };

  struct Sockets {
    PublishSocket tokens;
    PullSocket aborts;
    ReplySocket asks;
  };
  Publisher(const Options& options, Sockets sockets, std::unique_ptr<WaitSet> waits);

  // Waits until there may be something to do.
  void Wait();
  // Takes and sends the sessions' events; true if there were any.
  bool Publish();
  void Drain(const std::shared_ptr<Session>& session);
  // Keeps an event and sends it with others.
  void Add(TokenEvent event);
  // Takes ended sessions off the list, and frees those that no other thread uses. Their memory is
  // unmapped here and not on the verify thread.
  void Retire();
  // Keeps the sequence of the event's stream.
  void Remember(const std::shared_ptr<Session>& session, SequenceHandle sequence,
                const TokenEvent& event);
  // Writes a line for a stream that ended by an abort or an error.
  static void LogEnd(const Session& session, const Target& target, const TokenEvent& event);
  // Tells the engine that nothing will move the stream's end any more.
  static void Settle(Target* target);
  void SendBatch();
  void SendHeartbeat();
  // Sends the buffer.
  void Send(std::string_view topic, const char* what);
  bool Receive();
  // An error if the message is unreadable, which is logged.
  absl::Status Handle(std::string_view topic, std::string_view payload);
  absl::Status Apply(const SignOfLife& alive);
  void Apply(const AbortRequest& request);
  std::string AnswerAsk(std::string_view payload, uint32_t uid);
  // Ends the stream of a request, if this user may.
  absl::Status AbortRequested(const std::string& request_id, uint32_t uid);
  // True if no text side looks for the request's stop strings, and none is to come.
  bool IsUnwatched(std::string_view request_id) const {
    return options_.watch_text_side && !text_sides_.Has(request_id);
  }
  // Aborts streams of the shard that have stop strings: all, or those whose text no other text side
  // can make.
  void AbortUnwatched(std::string_view why, bool are_all, const TextShard& shard);

  const Options options_;
  PublisherMeters own_meters_;
  PublisherMeters& meters_;
  std::atomic<bool> stop_{false};
  AwakeTime awake_;  // the publisher thread steps it
  TextSides text_sides_;
  const std::unique_ptr<WaitSet> waits_;

  // Owned by the publisher thread.
  PublishSocket tokens_;
  PullSocket aborts_;
  ReplySocket asks_;
  KeptStreams kept_;
  uint64_t version_ = 0;
  SessionList::Snapshot snapshot_;
  SessionList::Snapshot retired_;
  absl::flat_hash_map<uint64_t, Target> targets_;
  StreamNames running_;
  std::deque<uint64_t> ended_streams_;  // oldest first; their targets are forgotten in this order
  TokenBatch batch_;
  size_t batch_bytes_ = 0;  // approximate
  int64_t next_heartbeat_ns_ = 0;
  std::string buffer_;
};

}  // namespace specd
