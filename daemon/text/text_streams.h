// TextStreams turns token events into text events and abort requests, for TextWorker.
//
// It does the detokenizer's work without sockets. One thread owns it; the same code runs in the
// daemon and in specd-detok. Token offsets are absolute. Tokens that come twice are dropped. A gap
// ends the stream with an error instead of wrong text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/vocabulary.h"
#include "ipc/events/token_event.h"

namespace specd {

// Sums since construction.
struct TextCounters {
  uint64_t streams = 0;
  uint64_t tokens = 0;
  uint64_t late_tokens = 0;     // arrived after their stream's text had ended
  uint64_t broken_streams = 0;  // ended because tokens were missing
  uint64_t unknown_events = 0;  // for a stream whose opening was never seen
};

// The vocabulary of each model, by the name of its profile.
using TextVocabularies = absl::flat_hash_map<std::string, const Vocabulary*>;

class TextStreams {
 public:
  // The vocabularies must outlive the streams. A stream of a model that is not among them ends with
  // an error at once, because a reader must not take silence for text.
  explicit TextStreams(TextVocabularies vocabularies) : vocabularies_(std::move(vocabularies)) {}

  // Appends the text events and abort requests that follow from one event. The sender fills in
  // epoch and seq of the text events, and epoch of the abort requests.
  void Apply(const TokenEvent& event, std::vector<TextEvent>* texts,
             std::vector<AbortRequest>* aborts);

  // Ends every stream with an error: events were lost, or another daemon has taken the old one's
  // place.
  void EndAll(std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts);

  // Streams whose text has not ended.
  uint64_t num_live() const { return num_live_; }
  const TextCounters& counters() const { return counters_; }

 private:
  struct Stream {
    Stream(const Vocabulary* vocabulary, std::shared_ptr<const StopSet> stops, TextOptions options)
        : text(vocabulary, std::move(stops), options), include_stop(options.include_stop) {}
    TextStream text;
    bool include_stop;
    uint64_t number = 0;
    bool ended = false;  // its end was announced; kept until the daemon's end comes
    uint64_t tokens = 0;
    uint64_t accepted = 0;
    uint64_t rounds = 0;
    double cumulative_logprob = 0;  // sum over `tokens`; NaN: none
    std::string request_id;
    std::vector<std::string> stop_strings;
  };

  void Open(const TokenEvent& event, std::vector<TextEvent>* texts,
            std::vector<AbortRequest>* aborts);
  void PushTokens(const TokenEvent& event, Stream* stream, std::vector<TextEvent>* texts,
                  std::vector<AbortRequest>* aborts);
  void End(const TokenEvent& event, Stream* stream, std::vector<TextEvent>* texts);
  void EndByGap(const TokenEvent& event, Stream* stream, std::vector<TextEvent>* texts,
                std::vector<AbortRequest>* aborts);
  // An event that continues the stream from its last offset.
  TextEvent Next(const Stream& stream) const;
  void CloseWith(TextChunk chunk, TextEvent out, Stream* stream, std::vector<TextEvent>* texts);

  const TextVocabularies vocabularies_;
  const Vocabulary no_vocabulary_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Stream>> streams_;
  uint64_t num_live_ = 0;
  TextCounters counters_;
};

}  // namespace specd
