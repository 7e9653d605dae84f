// TextReader puts the text events of an endpoint in order for a reader of all its streams: every
// byte of every stream once, and in order, or a sentence that says why not.
//
// Hand it what the publisher sends. Where something is missing it wants an answer of the text side
// (ask.h) before the next message. It follows a text side that takes a dead one's place, and a
// daemon at which engines open their sequences again. docs/PROTOCOL.md, "ZeroMQ messages", has the
// rules. `specd.subscribe` has the same reader in Python (exact_reader.py), which reads ids too.
//
// No I/O (text_subscription.h has the sockets). One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/fnv.h"
#include "ipc/events/ask.h"
#include "ipc/events/text_event.h"
#include "ipc/events/token_event.h"

namespace specd {

// What came next of one stream. `event.stream` is the reader's own number of it, 1, 2, 3, ...,
// which stays when another daemon goes on with the stream. Events have no scores.
struct ReadEvent {
  TextEvent event;        // byte_offset is where the bytes that came before end
  std::string lost = {};  // unless empty, `event` only names the stream: no more comes, and why
};

class TextReader {
 public:
  // Events are appended to `out`.
  void Hear(const Heartbeat& heartbeat, std::vector<ReadEvent>* out);
  void Hear(TextEvent event, std::vector<ReadEvent>* out);

  // What has to be asked before the next message is heard; null: nothing.
  const Ask* ask() const { return asks_.empty() ? nullptr : &asks_.front(); }
  // The answer to ask(), or the reason why there is none (NOT_FOUND). An error: the publisher
  // refuses what every publisher answers.
  absl::Status Answered(const absl::StatusOr<TextAnswer>& answer, std::vector<ReadEvent>* out);

  // A publisher was heard, and everything that it had before was asked for and has come.
  bool is_current() const { return epoch_ != 0 && asks_.empty(); }

 private:
  struct Stream {
    uint64_t number = 0;  // the reader's own
    std::string name;
    uint64_t have = 0;    // bytes of text
    uint64_t tokens = 0;  // up to the last event
    Fnv1a checksum = {};
  };
  // The numbers, or names, that were added last.
  template <class Key>
  class Recent {
   public:
    bool Has(const Key& key) const { return keys_.contains(key); }
    void Add(const Key& key) {
      if (!keys_.insert(key).second) return;
      order_.push_back(key);
      if (order_.size() <= kRecentMax) return;
      keys_.erase(order_.front());
      order_.pop_front();
    }
    void Clear() {
      keys_.clear();
      order_.clear();
    }

   private:
    std::unordered_set<Key> keys_;
    std::deque<Key> order_;
  };
  static constexpr size_t kRecentMax = 65536;

  void Begin(uint64_t epoch, uint64_t seq, std::vector<ReadEvent>* out);
  // True if something was lost before the message, and all has to be asked for.
  bool Follow(uint64_t seq, uint64_t expected, std::optional<uint64_t> instance);
  void AskAll();
  void AskFrom(uint64_t stream, uint64_t offset);

  void Take(TextEvent event, bool is_answer, std::vector<ReadEvent>* out);
  void Open(TextEvent event, std::vector<ReadEvent>* out);
  void Continue(TextEvent event, std::vector<ReadEvent>* out);
  void Lose(uint64_t stream, std::string_view why, std::vector<ReadEvent>* out);
  // Says that the stream is lost, and that no later daemon gives it again.
  void EndLost(const Stream& stream, std::string_view why, std::vector<ReadEvent>* out);
  static void SayLost(const Stream& stream, std::string_view why, std::vector<ReadEvent>* out);

  uint64_t epoch_ = 0;
  uint64_t seq_ = 0;
  std::optional<uint64_t> instance_;  // of the text side
  std::deque<Ask> asks_;
  // A refused ask. It counts once an answer shows that it came from the daemon of this epoch.
  struct Refusal {
    Ask ask;
    std::string why;
  };
  std::optional<Refusal> refusal_;

  std::map<uint64_t, Stream> live_;  // by their numbers in this epoch
  Recent<uint64_t> over_;            // streams of this epoch that have ended or are lost
  // Streams of a daemon that is gone, by name. Their engines may open them again.
  std::map<std::string, Stream> waiting_;
  int patience_heartbeats_ = 0;
  Recent<std::string> ended_;  // the names of streams that are over
  uint64_t last_number_ = 0;
};

}  // namespace specd
