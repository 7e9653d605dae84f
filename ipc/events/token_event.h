// Token events and heartbeats are specd's messages to subscribers over ZeroMQ, beside text events
// (text_event.h). One message comes back: the text side's request to end a sequence.
//
// Every payload is one msgpack map with string keys, readable by any msgpack library. Decoding
// ignores unknown keys, because a newer publisher may add some. It refuses a missing key, a wrong
// type, another `v`, and any value over the bounds. Offsets are absolute, so a reader knows what it
// missed and drops what it has twice. docs/PROTOCOL.md is the reference for subscribers.
//
// Pure functions, safe from any thread. The encoders append to a buffer that can be used again.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/events/text_event.h"
#include "ipc/events/text_shard.h"
#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// Ids of the prompt and of earlier outputs that an opening may bring along.
inline constexpr size_t kPromptTailMax = 64;
inline constexpr size_t kOutputTailMax = 65536;

// ---- tokens: daemon to detokenizer and observers ------------------------------------------------

enum class TokenEventKind : uint32_t { kOpen, kTokens, kEnd };  // the order of TokenEvent::what

// Why a stream ended by an error. Only the daemon's log has it; it is not on the wire.
struct EndFault {
  Refusal refusal = Refusal::kNone;
  uint32_t place = 0;     // of the round's draft
  uint32_t row = kNoRow;  // an index into the tensor that `refusal` names
};

// What a text side needs to make the text of a stream.
struct StreamOpening {
  std::string request_id = {};
  std::vector<std::string> stop_strings = {};
  std::vector<std::string> stop_regex = {};  // on the wire unless empty
  bool stops_inline = false;  // the rounds find them: not on the wire, for the daemon's publisher
  bool skip_special_tokens = true;
  bool include_stop = false;
  // A stop string that completes at token number min_tokens or before does not count. Tokens before
  // the event's offset are counted as well.
  uint32_t min_tokens = 0;
  // The name of the model's profile, whose tokenizer has the ids. On the wire unless empty.
  std::string profile = {};
  // A fork: the stream that it is a copy of. The copy is made where the events before this one
  // leave the source. 0: no fork.
  uint64_t forked_from = 0;
  // The stream goes on from one of the same request at a daemon that is gone. Its tokens up to now
  // follow as events; inside the daemon they are `resumed_ids`.
  bool resumed = false;
  std::vector<TokenId> resumed_ids = {};  // not on the wire
  // The earlier ids that the text depends on, if the stream is no fork: the last ids of the prompt,
  // and the last outputs that the sequence was opened with. Empty if the text can begin without
  // them.
  std::vector<TokenId> prompt_tail = {};
  std::vector<TokenId> output_tail = {};
  // The text that ends a thought, if the stream begins inside one (detokenizer/reasoning_end.h),
  // and how many of its bytes the ids before spell. Empty: the text is an answer.
  std::string reasoning_end = {};
  uint32_t reasoning_progress = 0;
  uint64_t reasoning_tokens = 0;  // of the tokens before the event's offset: those of the thought
  // In an answer alone (ask.h), of a fork: the tokens between the opening of the stream that it was
  // copied from and the copy. Their text is not the fork's, and forked_from is 0.
  std::vector<TokenId> earlier = {};
  // The sum of the logprobs of the tokens that were kept since the sequence was opened. A fork's
  // sum includes its source's. NaN: none; then it is not on the wire.
  double cumulative_logprob = std::numeric_limits<double>::quiet_NaN();

  // The text may end at a stop string or a pattern.
  bool HasStops() const { return !stop_strings.empty() || !stop_regex.empty(); }
};

// The tokens that one round kept.
struct RoundTokens {
  std::vector<TokenId> ids = {};
  uint32_t accepted = 0;  // this many ids at the front are accepted draft tokens
  // One for each id; empty if the sequence has no logprobs. A reader can add them in double, in
  // this order, to the sum of the opening. The result is the daemon's own sum, bit for bit.
  std::vector<double> logprobs = {};
  // For each id as many scores as its result has: its own, those of the best ids, those of
  // logprob_token_ids. Empty if the sequence has no logprobs.
  std::vector<TokenScore> scores = {};
  // The stop id or EOS that finished the stream, the last of the ids, or kNoToken. Its text is
  // withheld unless include_stop.
  TokenId stop_token = kNoToken;
};

struct StreamEnd {
  uint32_t finish_reason = 0;  // SPECD_FINISH_*, on the wire "stop", "length", "abort", "error"
  TokenId stop_token = kNoToken;
  EndFault fault = {};
  uint64_t checksum = 0;  // Fnv1a of the ids from the opening to the end; 0: not known
  double cumulative_logprob = std::numeric_limits<double>::quiet_NaN();  // as in the opening
};

// A TokenEvent says what happened to one stream in one round, or at its opening or end. A stream is
// a sequence of one session. Handles of two sessions may be equal, but stream numbers of one daemon
// never are.
struct TokenEvent {
  uint64_t stream = 0;   // unique in this epoch
  uint64_t offset = 0;   // tokens of the stream before this event
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC of the daemon's machine when the round was confirmed
  std::variant<StreamOpening, RoundTokens, StreamEnd> what = RoundTokens();  // by TokenEventKind

  TokenEventKind kind() const { return static_cast<TokenEventKind>(what.index()); }
  // Null if the event is another one.
  const StreamOpening* opening() const { return std::get_if<StreamOpening>(&what); }
  const RoundTokens* tokens() const { return std::get_if<RoundTokens>(&what); }
  const StreamEnd* end() const { return std::get_if<StreamEnd>(&what); }
  StreamOpening* opening() { return std::get_if<StreamOpening>(&what); }
  RoundTokens* tokens() { return std::get_if<RoundTokens>(&what); }
  StreamEnd* end() { return std::get_if<StreamEnd>(&what); }
  size_t num_ids() const { return tokens() == nullptr ? 0 : tokens()->ids.size(); }
};

// The event as a map inside another one.
void WriteTokenEvent(MapWriter* writer, const TokenEvent& event);
void ReadTokenEvent(MapReader* reader, TokenEvent* event);

struct TokenBatch {
  uint64_t epoch = 0;  // the daemon's
  uint64_t seq = 0;    // 1, 2, 3, ... of this publisher; a gap is a loss
  std::vector<TokenEvent> events;
};

void AppendTokenBatch(const TokenBatch& batch, std::string* out);
absl::StatusOr<TokenBatch> DecodeTokenBatch(std::string_view payload);

// ---- heartbeat ----------------------------------------------------------------------------------

// A Heartbeat is sent on both endpoints several times a second. A subscriber thus sees the loss of
// a last message, and knows when a publisher is gone.
struct Heartbeat {
  uint64_t epoch = 0;
  uint64_t seq = 0;       // seq of the last message before this one; heartbeats are not counted
  uint64_t streams = 0;   // number of open streams
  uint64_t instance = 0;  // of the detokenizer, as in SignOfLife; 0: token events
};

void AppendHeartbeat(const Heartbeat& heartbeat, std::string* out);
absl::StatusOr<Heartbeat> DecodeHeartbeat(std::string_view payload);

// ---- detokenizer to daemon ----------------------------------------------------------------------
// Two frames: kAbortTopic or kAliveTopic, then the payload.

inline constexpr std::string_view kAbortTopic = "abort";
inline constexpr std::string_view kAliveTopic = "alive";

// A SignOfLife says that a detokenizer hears the daemon's token events and looks for stop strings.
// The daemon accepts sequences with stop strings only while signs of life come, of every shard. If
// `instance` differs from the one before of the same shard, the detokenizer of that one is gone.
struct SignOfLife {
  uint64_t epoch = 0;
  uint64_t instance = 0;  // random; drawn at the start, and again after token batches were lost
  TextShard shard = {};
};

void AppendSignOfLife(const SignOfLife& alive, std::string* out);
absl::StatusOr<SignOfLife> DecodeSignOfLife(std::string_view payload);

// An AbortRequest ends a stream; tokens beyond kept_tokens are void. It is idempotent: for a stream
// that is gone, or of another epoch, it changes nothing. For a stream that has ended it is the text
// side's last word, whatever the reason.
struct AbortRequest {
  uint64_t epoch = 0;
  uint64_t stream = 0;
  uint64_t kept_tokens = 0;
  // SPECD_FINISH_STOP: a stop string was found; _ABORT: no reader wants the text; _NONE: the stream
  // has stop strings, and its text ends where the stream ended.
  uint32_t finish_reason = 0;
};

void AppendAbortRequest(const AbortRequest& request, std::string* out);
absl::StatusOr<AbortRequest> DecodeAbortRequest(std::string_view payload);

}  // namespace specd
