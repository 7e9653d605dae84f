// Text events are the detokenizer's messages to subscribers over ZeroMQ, under topics of their own.
//
// Like all events (token_event.h) they are msgpack maps with absolute offsets. Pure functions, safe
// from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/token_score.h"
#include "kernels/core/types.h"

namespace specd {

class MapReader;
class MapWriter;

inline constexpr size_t kEventBytesMax = 4 * 1024 * 1024;

// A topic is the first frame of a published message. A subscription is a prefix match. The text
// topic therefore ends with a delimiter: "text/req-1/" does not match "text/req-10/".
inline constexpr std::string_view kTokensTopic = "tokens";
inline constexpr std::string_view kHeartbeatTopic = "heartbeat";
std::string TextTopic(std::string_view request_id);
// True if a published topic can begin with the prefix. A subscription to another finds nothing.
bool IsTopicPrefix(std::string_view prefix);

enum class TextEventKind : uint32_t { kOpen, kText, kEnd };

// A piece of the text: whether it comes from accepted draft tokens, and whether it is of the
// thought.
struct WireSpan {
  uint32_t size_bytes = 0;
  bool accepted = false;
  bool reasoning = false;
};

struct TextEvent {
  TextEventKind kind = TextEventKind::kText;
  uint64_t epoch = 0;
  uint64_t seq = 0;     // counts all messages of the publisher; gaps are normal for one stream
  uint64_t stream = 0;  // unique in this epoch, while request ids are used again
  std::string request_id;
  bool resumed = false;  // open: as in TokenEvent

  // text and end
  uint64_t token_offset = 0;    // tokens of the stream before this event
  uint64_t tokens = 0;          // tokens of the stream after it
  uint64_t byte_offset = 0;     // bytes of text before this event
  std::string text;             // valid UTF-8
  std::vector<WireSpan> spans;  // the spans together are as long as text
  // As in TokenEvent, of the tokens from token_offset up to `tokens`. The text may be of other
  // tokens, because it may be held back while its scores are not.
  std::vector<TokenScore> scores;
  // The bytes of the id of each score, which may be a part of a character; as many as scores, or
  // none. Empty for an id without text.
  std::vector<std::string> score_bytes;

  // end
  uint32_t finish_reason = 0;
  std::string stop_string;        // the stop string that was found, or ""
  TokenId stop_token = kNoToken;  // or the id; `stop` on the wire is a string, an integer or nil
  uint64_t rounds = 0;            // rounds in which the stream gained tokens
  uint64_t accepted = 0;          // accepted draft tokens among `tokens`
  uint64_t reasoning_tokens = 0;  // tokens of the thought among them; on the wire unless 0
  uint64_t late = 0;              // tokens dropped because they came after the end of the text
  // The sum over `tokens`, as in TokenEvent.
  double cumulative_logprob = std::numeric_limits<double>::quiet_NaN();
  uint64_t checksum = 0;  // Fnv1a of the whole text
};

// The event as a map inside another one (ask.h).
void WriteTextEvent(MapWriter* writer, const TextEvent& event);
void ReadTextEvent(MapReader* reader, TextEvent* event);

void AppendTextEvent(const TextEvent& event, std::string* out);
absl::StatusOr<TextEvent> DecodeTextEvent(std::string_view payload);

}  // namespace specd
