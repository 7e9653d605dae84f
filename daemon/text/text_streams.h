// TextStreams turns token events into text events and abort requests, for TextWorker.
//
// It does the detokenizer's work without sockets. One thread owns it; the same code runs in the
// daemon and in specd-detok. Token offsets are absolute. Tokens that come twice are dropped.
// TextWorker asks for what is missing. If the daemon has not kept it either, the text ends with an
// error instead of a gap. The sequence is aborted only if it has stop strings, because no text side
// can look for them any more.
//
// A stream that begins in the middle of its sequence takes the state of the text before it from its
// opening (daemon/session/text_tail.h) or, a fork, from the stream that it was copied from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/metrics/meters.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/vocabulary.h"
#include "ipc/base/fnv.h"
#include "ipc/events/token_event.h"

namespace specd {

// The vocabulary of each model, by the name of its profile.
using TextVocabularies = absl::flat_hash_map<std::string, const Vocabulary*>;

class TextStreams {
 public:
  // The vocabularies must outlive the streams. A stream of a model that is not among them ends with
  // an error at once, because a reader must not take silence for text.
  // They count with the meters; null: with those of their own.
  explicit TextStreams(TextVocabularies vocabularies, TextMeters* meters = nullptr)
      : vocabularies_(std::move(vocabularies)), meters_(meters == nullptr ? own_ : *meters) {}

  // Appends the text events and abort requests that follow from one event. The sender fills in
  // epoch and seq of the text events, and epoch of the abort requests.
  void Apply(const TokenEvent& event, std::vector<TextEvent>* texts,
             std::vector<AbortRequest>* aborts);

  // Forgets every stream: another daemon has taken the old one's place. Readers see its epoch, and
  // engines may open their sequences again there.
  void Forget();
  // Ends one stream with an error, and forgets it: its end will not come.
  void EndLost(uint64_t stream, std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts);

  bool Has(uint64_t stream) const { return streams_.contains(stream); }
  // The streams whose end has not come, and the tokens that each has.
  std::vector<std::pair<uint64_t, uint64_t>> Offsets() const;

  // Streams whose text has not ended.
  uint64_t num_live() const { return num_live_; }
  const TextMeters& meters() const { return meters_; }

 private:
  struct Stream {
    explicit Stream(TextStream begin) : text(std::move(begin)) {}
    TextStream text;
    bool include_stop = false;
    uint64_t number = 0;
    bool ended = false;  // its end was announced; kept until the daemon's end comes
    uint64_t tokens = 0;
    uint64_t accepted = 0;
    uint64_t reasoning = 0;  // tokens of the thought
    uint64_t rounds = 0;
    double cumulative_logprob = 0;  // sum over `tokens`; NaN: none
    Fnv1a checksum;                 // of the text that was given out
    std::string request_id;
    bool has_stops = false;   // of its request, though no text may be left to look for them
    std::optional<int> stop;  // the index of the stop that ended the text (StopSet::TextOf)
  };

  void Open(const TokenEvent& event, const StreamOpening& opening, std::vector<TextEvent>* texts,
            std::vector<AbortRequest>* aborts);
  // The stream that a fork goes on from; null if the event is no fork, or if the source is not
  // where the copy was made.
  const Stream* SourceOf(const StreamOpening& opening, uint64_t offset) const;
  // The text of an opening that goes on from no other stream. Null if it cannot be made.
  std::unique_ptr<Stream> Begin(const StreamOpening& opening, uint64_t offset) const;
  // Ends the text at a stop string. `out` continues the stream.
  void EndByStop(TextChunk chunk, TextEvent out, Stream* stream, std::vector<TextEvent>* texts,
                 std::vector<AbortRequest>* aborts);
  void PushTokens(const RoundTokens& round, uint64_t offset, Stream* stream,
                  std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts);
  void End(const StreamEnd& end, Stream* stream, std::vector<TextEvent>* texts);
  // `num_late` tokens came behind the gap.
  void EndByGap(uint64_t num_late, Stream* stream, std::vector<TextEvent>* texts,
                std::vector<AbortRequest>* aborts);
  // An event that continues the stream from its last offset.
  TextEvent Next(const Stream& stream) const;
  void CloseWith(TextChunk chunk, TextEvent out, Stream* stream, std::vector<TextEvent>* texts);

  const TextVocabularies vocabularies_;
  const Vocabulary no_vocabulary_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Stream>> streams_;
  uint64_t num_live_ = 0;
  TextMeters own_;
  TextMeters& meters_;
};

}  // namespace specd
