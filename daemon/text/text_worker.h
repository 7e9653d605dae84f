// TextWorker connects TextStreams to sockets: it subscribes to token events, publishes text, sends
// aborts, and answers readers that ask for text again.
//
// At its start, and after a loss, it asks the daemon for the streams that are open and for those
// that have ended, and continues where it was: the answer is newer than the loss. Until then it
// drops what it hears. The text of a stream that had ended is kept for readers that ask, because
// an earlier worker may have published it; its events count in `seq` as messages that were lost.
//
// The daemon runs one in a thread; specd-detok is a process around the same class. One thread calls
// Run (or Step); any thread may call Stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/base/awake_time.h"
#include "daemon/base/clock.h"
#include "daemon/text/kept_texts.h"
#include "daemon/text/text_streams.h"
#include "ipc/events/text_shard.h"
#include "ipc/sockets/publish_socket.h"
#include "ipc/sockets/reply_socket.h"
#include "ipc/sockets/request_socket.h"
#include "ipc/sockets/wait_set.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class TextWorker {
 public:
  struct Options {
    TextVocabularies vocabularies;
    Clock* clock = nullptr;
    ZmqContext* context = nullptr;
    std::string tokens_endpoint;        // to connect to
    std::string aborts_endpoint;        // to connect to
    std::string ask_endpoint;           // to connect to
    std::string text_endpoint;          // to bind
    std::string text_ask_endpoint;      // to bind
    BroadcastOptions subscribers = {};  // of the text endpoint
    ReplyOptions askers = {};           // of the other
    KeepLimits keep = {};               // the text that they may ask for
    TextShard shard = {};               // the streams whose text it makes
    // Hashes, by the name of the model. If the daemon has another one, the worker closes.
    std::map<std::string, uint64_t> tokenizers = {};
    TextMeters* meters = nullptr;  // which outlive the worker; null: those of its own
  };
  static absl::StatusOr<std::unique_ptr<TextWorker>> Create(const Options& options);

  // Handles the messages that have arrived, and waits up to `timeout` for the first; true if there
  // was one.
  bool Step(absl::Duration timeout);

  // Steps until Stop, or until the context is shut down. Then it handles the messages that have
  // arrived, within bounds.
  void Run();
  void Stop() { stop_.store(true, std::memory_order_relaxed); }

  // True after a socket has failed: the worker can do no more.
  bool closed() const { return closed_; }

  const TextMeters& meters() const { return meters_; }

 private:
  struct Sockets {
    ZmqSocket tokens;
    PublishSocket text;
    ZmqSocket aborts;
    ReplySocket asks;
  };
  TextWorker(const Options& options, Sockets sockets, std::unique_ptr<WaitSet> waits);

  // Handles what has arrived; true if there was something.
  bool Look();
  void Handle(std::string_view topic, std::string_view payload);
  void HandleBatch(const TokenBatch& batch);
  // The publisher's last message before this one had number `seq`. Looks whether it is another
  // publisher, and whether a message is missing.
  void Follow(uint64_t epoch, uint64_t seq);
  // Asks the daemon for all that is open. False if it does not answer; then it is asked again.
  bool CatchUp();
  void SendAsk(const Ask& ask);
  absl::StatusOr<TokenAnswer> ReceiveAnswer();
  // Applies all events of the answers to an ask. An error if there was none.
  absl::Status Replay(Ask ask);
  // An error names the model whose tokenizer is another one than the daemon's.
  absl::Status CheckTokenizers(const TokenAnswer& answer) const;
  // True if another shard makes the text of the event's stream.
  bool IsOfAnotherShard(const TokenEvent& event) const;
  // Asks for a fork whose source this worker does not have. False if the daemon does not answer.
  bool AskForFork(const TokenEvent& opening);
  std::string AnswerAsk(std::string_view payload) const;
  // Ends the text of a stream that the daemon cannot give any more.
  void Lose(uint64_t stream, const absl::Status& why);
  void SendTexts();
  // Sends the texts, or keeps those of a quiet stream for readers that ask.
  void GiveTexts(uint64_t stream);
  // The events of quiet streams will not be heard any more: their texts count as lost messages.
  void CountQuiet();
  void SendAborts();
  void SendHeartbeats();
  // Both send the buffer.
  void Publish(std::string_view topic, bool more_follow = false);
  void Report(std::string_view topic);

  const Options options_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> closed_{false};  // written by the worker's thread

  // Owned by the worker's thread.
  ZmqSocket tokens_;
  PublishSocket text_;
  ZmqSocket aborts_;
  ReplySocket asks_;
  RequestSocket daemon_;
  const std::unique_ptr<WaitSet> waits_;
  KeptTexts kept_;
  TextMeters own_meters_;
  TextMeters& meters_;
  TextStreams streams_;
  uint64_t instance_;
  uint64_t epoch_ = 0;  // 0: nothing heard yet
  uint64_t last_batch_seq_ = 0;
  bool is_caught_up_ = false;
  absl::flat_hash_set<uint64_t> replayed_;  // streams of the last answers, until their End
  // Streams that had ended when an answer brought them, and their text events. Their text is kept,
  // and published only if the batches up to `quiet_until_` have all their events.
  absl::flat_hash_map<uint64_t, uint64_t> quiet_;
  uint64_t quiet_until_ = 0;
  AwakeTime awake_;
  int64_t last_heard_ns_;  // of awake_
  uint64_t seq_ = 0;
  int64_t next_heartbeat_ns_ = 0;
  std::string buffer_;
  std::vector<std::string> frames_;
  std::vector<TextEvent> texts_;
  std::vector<AbortRequest> abort_requests_;
};

}  // namespace specd
