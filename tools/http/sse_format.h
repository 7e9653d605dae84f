// SseFormat turns the text of a stream into server-sent events of one framing, for StreamEvents.
//
// Completions, chat and responses are those of OpenAI, as its own client and vLLM have them; specd
// has all that a text event says. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/events/text_event.h"

namespace specd::http {

// What the events of a stream say beside its text.
struct StreamFacts {
  std::string request_id;
  std::string model = {};
  int64_t created_s = 0;       // Unix time
  uint64_t prompt_tokens = 0;  // specd does not see prompts: the client has said it
  bool has_usage = false;      // completions and chat: a chunk with the numbers of tokens
};

// Events for byte 0 of the text, for some text, for the end of all (`text`: the whole, if the
// format repeats it), and for a stream of which no more comes. The id of each event is the offset
// of the byte after it.
struct SseFormat {
  std::string_view name;
  bool repeats_text = false;
  void (*open)(const StreamFacts&, std::string* out);
  void (*text)(const StreamFacts&, const TextEvent& event, std::string* out);
  void (*end)(const StreamFacts&, const TextEvent& end, const std::string& text, std::string* out);
  void (*lost)(const StreamFacts&, uint64_t offset, const std::string& why, std::string* out);
};
extern const SseFormat kCompletionsFormat;
extern const SseFormat kChatFormat;
extern const SseFormat kResponsesFormat;
extern const SseFormat kSpecdFormat;
// Null if there is none of this name.
const SseFormat* FindFormat(std::string_view name);

// One event. Behind the end of a stream a client has nothing to come back for: the id then ends
// with ".end".
struct SseId {
  uint64_t offset = 0;
  bool is_end = false;
};
void AppendSse(std::string_view name, std::string_view data, const SseId& id, std::string* out);

// {"error": {...}}, on which OpenAI's client raises an error.
std::string ErrorJson(const std::string& why);
// "stop", "length", "abort" or "error"
std::string_view FinishName(const TextEvent& end);
// The stop string or the stop id that ended it, or null.
std::string StopJson(const TextEvent& end);

}  // namespace specd::http
