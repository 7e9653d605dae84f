// TextWorker: TextStreams with sockets. Subscribes to token events, publishes text, sends aborts.
//
// The daemon runs one in a thread; specd-detok is a process around the same class. One thread calls
// Run (or Step); Stop may be called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/clock.h"
#include "daemon/text_streams.h"
#include "ipc/zmq_socket.h"

namespace specd {

class TextWorker {
 public:
  struct Options {
    const Vocabulary* vocabulary = nullptr;
    Clock* clock = nullptr;
    ZmqContext* context = nullptr;
    std::string tokens_endpoint;  // to connect to
    std::string aborts_endpoint;  // to connect to
    std::string text_endpoint;    // to bind
  };
  static absl::StatusOr<std::unique_ptr<TextWorker>> Create(const Options& options);

  // Handles what has arrived, waiting up to `timeout` for the first message; true if there was one.
  bool Step(absl::Duration timeout);

  // Until Stop, or until the context is shut down; handles what has arrived by then.
  void Run();
  void Stop() { stop_.store(true, std::memory_order_relaxed); }

  const TextCounters& counters() const { return streams_.counters(); }

 private:
  TextWorker(const Options& options, ZmqSocket tokens, ZmqSocket text, ZmqSocket aborts);

  void HandleBatch(const std::string& payload);
  void SendTexts(std::vector<TextEvent>* texts);
  void SendAborts(std::vector<AbortRequest>* aborts);
  // Tells subscribers that the publisher lives and what they should have, and the daemon that
  // somebody looks for stop strings.
  void SendHeartbeats();

  const Options options_;
  std::atomic<bool> stop_{false};

  // Owned by the worker's thread.
  ZmqSocket tokens_;
  ZmqSocket text_;
  ZmqSocket aborts_;
  TextStreams streams_;
  uint64_t epoch_ = 0;
  uint64_t last_batch_seq_ = 0;
  uint64_t seq_ = 0;
  int64_t next_heartbeat_ns_ = 0;
  bool closed_ = false;
  std::string buffer_;
  std::vector<std::string> frames_;
  std::vector<TextEvent> texts_;
  std::vector<AbortRequest> abort_requests_;
};

}  // namespace specd
