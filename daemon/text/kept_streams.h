// KeptStreams keeps the ids of streams for readers that ask for events again, for Publisher.
//
// It sees every token event in the order in which it is published, and makes the same events again
// from the kept ids: an opening, rounds, an end. Scores are not kept; logprobs are. A stream that
// has ended is kept for a while (kept_table.h). If the ids of a stream find no room, its opening
// alone is kept, and an answer has a gap in the place of the ids. One thread uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/text/kept_table.h"
#include "ipc/base/fnv.h"
#include "ipc/events/ask.h"
#include "ipc/events/token_event.h"

namespace specd {

class KeptStreams {
 public:
  explicit KeptStreams(const KeepLimits& limits) : table_(limits) {}

  // Keeps what the event says. The end of a stream gets its checksum, if the ids up to its offset
  // are known.
  void Take(TokenEvent* event, int64_t now_ns);
  void Expire(int64_t now_ns) { table_.Expire(now_ns); }

  // All but kAbort. The publisher fills in epoch and seq. An error names what cannot be given.
  absl::StatusOr<TokenAnswer> Answer(const Ask& ask) const;

  // True if a text side that knows nothing of the stream could make its text.
  bool IsWhole(uint64_t stream) const;

  size_t bytes() const { return table_.bytes(); }

 private:
  struct Round {
    uint8_t num_ids = 0;
    uint8_t accepted = 0;
  };
  struct Kept {
    TokenEvent begin = {};  // its opening
    uint64_t forked_from = 0;
    size_t opening_bytes = 0;
    std::vector<TokenId> ids = {};
    std::vector<float> logprobs = {};  // one for each id; empty: none
    std::vector<Round> rounds = {};
    // The number of ids before each round whose index is a multiple of kStride.
    std::vector<uint32_t> strides = {};
    uint64_t tokens = 0;  // of the stream, those before its opening included
    Fnv1a checksum = {};  // of all ids since the opening, kept or not
    bool is_whole = true;
    TokenId stop_token = kNoToken;  // of the last tokens
    std::optional<TokenEvent> end = std::nullopt;

    StreamOpening& opening() { return *begin.opening(); }
    bool has_ended() const { return end.has_value(); }
  };

  void Open(const TokenEvent& event);
  static void Append(const RoundTokens& tokens, Kept* kept);
  // Forgets the tokens from the offset on, which may be before the opening.
  static void Cut(uint64_t offset, Kept* kept);
  // Accounts for the bytes of the stream. If they find no room, it gives up ids, or all.
  void Fit(uint64_t stream);
  static size_t SizeBytes(const Kept& kept);
  // Appends the events from the offset on until the answer is full; false if it is.
  static bool AppendEvents(const Kept& kept, uint64_t offset, size_t* bytes, TokenAnswer* answer);

  KeptTable<Kept> table_;
  uint64_t newest_ = 0;
};

}  // namespace specd
