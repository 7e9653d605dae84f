// KeptTexts keeps the text of streams for readers that ask for it again, for TextWorker.
//
// It sees every text event of a stream in order. A stream that has ended is kept for a while
// (kept_table.h). Scores are not kept. If the text of a stream finds no room, its opening alone is
// kept, and an answer has a gap in the place of the text. One thread uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/text/kept_table.h"
#include "ipc/events/ask.h"
#include "ipc/events/text_event.h"

namespace specd {

class KeptTexts {
 public:
  explicit KeptTexts(const KeepLimits& limits) : table_(limits) {}

  void Take(const TextEvent& event, int64_t now_ns);
  void Expire(int64_t now_ns) { table_.Expire(now_ns); }

  // All but kAbort. The worker fills in epoch and seq. An error names what cannot be given.
  absl::StatusOr<TextAnswer> Answer(const Ask& ask) const;

  bool Has(uint64_t stream) const { return table_.Find(stream) != nullptr; }
  // The text that came so far, kept or not. REQUIRES: Has(stream).
  uint64_t BytesOf(uint64_t stream) const { return table_.Find(stream)->last.bytes; }
  // True if the whole text of the stream was given out.
  bool HasEnded(uint64_t stream) const {
    const Kept* const kept = table_.Find(stream);
    return kept != nullptr && kept->has_ended;
  }

  size_t bytes() const { return table_.bytes(); }

 private:
  // Where an event ended.
  struct Mark {
    uint64_t tokens = 0;
    uint64_t bytes = 0;
  };
  struct Span {
    uint64_t end : 62;  // in bytes of the text
    uint64_t accepted : 1;
    uint64_t reasoning : 1;
  };
  struct Kept {
    TextEvent opening = {};
    std::string text = {};
    std::vector<Span> spans = {};
    std::vector<Mark> marks = {};  // the first is where the stream began
    Mark last = {};                // where the stream is, kept or not
    bool is_whole = true;
    bool has_ended = false;
    TextEvent end = {};  // without its text
  };

  void Fit(uint64_t stream);
  // The bytes that the asker has of the stream; null if it is not kept.
  static absl::StatusOr<uint64_t> ByteOffset(const Kept* kept, const Ask& ask);
  // The spans of so many bytes from the offset on.
  static std::vector<WireSpan> SpansOf(const Kept& kept, uint64_t offset, uint64_t size_bytes);
  static bool AppendEvents(const Kept& kept, uint64_t offset, size_t* bytes, TextAnswer* answer);

  KeptTable<Kept> table_;
  uint64_t newest_ = 0;
};

}  // namespace specd
