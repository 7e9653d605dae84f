// Asks and answers are the messages by which a reader of events gets what it has missed.
//
// The daemon answers with token events, and a text side with text events. An answer holds a part of
// what was asked for; `next` says where to ask again. An ask that cannot be answered gets a
// sentence. All are msgpack maps as events are (token_event.h). Pure functions, safe from any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/events/text_event.h"
#include "ipc/events/token_event.h"

namespace specd {

// The events of an answer take about so many bytes. One event may be larger.
inline constexpr size_t kAnswerBytes = 256 * 1024;

enum class AskKind : uint32_t {
  kStreams,  // the streams that live, from number `stream` on, of that one only from `offset` on
  kEnded,    // the same of streams that have ended and are kept
  kFrom,     // one stream from `offset` on, also if it has ended
  kAbort,    // ends the stream of a request
};

struct Ask {
  AskKind kind = AskKind::kStreams;
  uint64_t stream = 0;
  uint64_t offset = 0;       // tokens of the stream, or bytes of its text, that the asker has
  bool by_tokens = false;    // `offset` counts tokens where text is asked for
  std::string request_id{};  // kAbort; kStreams and kEnded: of this request alone, unless empty
};

void AppendAsk(const Ask& ask, std::string* out);
absl::StatusOr<Ask> DecodeAsk(std::string_view payload);

struct AskPosition {
  uint64_t stream = 0;
  uint64_t offset = 0;
};

template <class Event>
struct Answer {
  uint64_t epoch = 0;
  uint64_t seq = 0;     // the last message of the publisher whose events the answer knows
  uint64_t newest = 0;  // the largest number of a stream that has begun
  std::vector<Event> events = {};
  std::optional<AskPosition> next = std::nullopt;  // absent: nothing is missing
};
using TokenAnswer = Answer<TokenEvent>;
using TextAnswer = Answer<TextEvent>;

void AppendAnswer(const TokenAnswer& answer, std::string* out);
void AppendAnswer(const TextAnswer& answer, std::string* out);
// Why there is no answer. If the reason passes (UNAVAILABLE), the asker may ask again.
void AppendRefusal(const absl::Status& why, std::string* out);

// An error: the bytes are no answer (INVALID_ARGUMENT), or a sentence (NOT_FOUND, UNAVAILABLE).
absl::StatusOr<TokenAnswer> DecodeTokenAnswer(std::string_view payload);
absl::StatusOr<TextAnswer> DecodeTextAnswer(std::string_view payload);

}  // namespace specd
