// What the verify thread tells the publisher thread: a stream opened, gained tokens, or ended.
//
// One session's events travel through one queue in the order in which they happened, so a stream's
// opening always comes before its tokens and its end after them. Plain data of fixed size: the
// verify thread allocates nothing.
#pragma once

#include <array>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipc/segment/layout.h"
#include "kernels/core/types.h"
#include "speculative/finish_rules.h"
#include "speculative/sequence_table.h"

namespace specd {

// What the text side has to know about a stream before its first token.
struct StreamInfo {
  std::string request_id;
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;
  uint32_t min_tokens = 0;  // no stop string ends the output at this many tokens or fewer
};

enum class StreamEventKind : uint32_t { kOpen, kTokens, kEnd };

struct StreamEvent {
  StreamEventKind kind = StreamEventKind::kTokens;
  SequenceHandle sequence = 0;
  uint64_t stream = 0;        // unique in this daemon's life
  int64_t time_ns = 0;        // when it was confirmed
  uint32_t token_offset = 0;  // kept tokens of the stream before this event
  uint32_t num_tokens = 0;    // kTokens: those kept in one round
  uint32_t num_accepted = 0;  // the first so many of them are accepted drafts
  FinishReason finish_reason = FinishReason::kNone;  // kEnd
  TokenId stop_token = kNoToken;  // kTokens, kEnd: the id that ended the stream, if one did
  double cumulative_logprob = 0;  // kOpen, kEnd: of the tokens kept so far; NaN: none
  StreamInfo* info = nullptr;     // kOpen: handed over with the event; whoever pops it owns it
  uint32_t num_logprobs = 0;      // kTokens: num_tokens, or 0 where they are not wanted
  std::array<TokenId, SessionLimits::kDraftMax + 1> tokens = {};
  std::array<float, SessionLimits::kDraftMax + 1> logprobs = {};
};

// The producer is whoever holds the session's lock, the consumer is the publisher thread.
using StreamEventQueue = boost::lockfree::spsc_queue<StreamEvent>;

}  // namespace specd
