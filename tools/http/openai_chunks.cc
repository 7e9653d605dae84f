// The framing of OpenAI's completions and chat completions: chunks, a chunk with the numbers of
// tokens, [DONE].
#include <fmt/format.h>

#include "ipc/include/specd/specd.h"
#include "tools/http/sse_format.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {
namespace {

using toy::QuoteJson;

// vLLM's name for what stopped it; OpenAI's choices have no such field.
struct Ending {
  std::string finish_reason = "null";
  std::string stop_reason = "null";
};

Ending EndingOf(const TextEvent& end) {
  return {.finish_reason = QuoteJson(FinishName(end)), .stop_reason = StopJson(end)};
}

void AppendChunk(const StreamFacts& facts, bool is_chat, std::string_view choices,
                 std::string_view more, const SseId& id, std::string* out) {
  AppendSse("",
            fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[{}]{}}})",
                        QuoteJson((is_chat ? "chatcmpl-" : "cmpl-") + facts.request_id),
                        is_chat ? "chat.completion.chunk" : "text_completion", facts.created_s,
                        QuoteJson(facts.model), choices, more),
            id, out);
}

// `content` is the text of a completion, or the delta of a chat, as JSON.
std::string Choice(bool is_chat, std::string_view content, const Ending& ending) {
  return fmt::format(R"({{"index":0,"{}":{},"logprobs":null,"finish_reason":{},"stop_reason":{}}})",
                     is_chat ? "delta" : "text", content, ending.finish_reason, ending.stop_reason);
}

void AppendEnd(const StreamFacts& facts, bool is_chat, const TextEvent& end, std::string* out) {
  const SseId id = {.offset = end.byte_offset};
  if (end.finish_reason == SPECD_FINISH_ERROR) {
    AppendSse("", ErrorJson("the sequence ended by an error; the daemon's log says why"), id, out);
  } else {
    AppendChunk(facts, is_chat, Choice(is_chat, is_chat ? "{}" : "\"\"", EndingOf(end)), "", id,
                out);
  }
  if (facts.has_usage) {
    AppendChunk(
        facts, is_chat, "",
        fmt::format(R"(,"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                    R"("completion_tokens_details":{{"accepted_prediction_tokens":{},)"
                    R"("reasoning_tokens":{}}}}})",
                    facts.prompt_tokens, end.tokens, facts.prompt_tokens + end.tokens, end.accepted,
                    end.reasoning_tokens),
        id, out);
  }
  AppendSse("", "[DONE]", {.offset = end.byte_offset, .is_end = true}, out);
}

void NoOpening(const StreamFacts&, std::string*) {}

void CompletionText(const StreamFacts& facts, const TextEvent& event, std::string* out) {
  AppendChunk(facts, false, Choice(false, QuoteJson(event.text), {}), "",
              {.offset = event.byte_offset + event.text.size()}, out);
}

void CompletionEnd(const StreamFacts& facts, const TextEvent& end, const std::string&,
                   std::string* out) {
  AppendEnd(facts, false, end, out);
}

void ChatOpening(const StreamFacts& facts, std::string* out) {
  AppendChunk(facts, true, Choice(true, R"({"role":"assistant","content":""})", {}), "", {}, out);
}

void ChatText(const StreamFacts& facts, const TextEvent& event, std::string* out) {
  AppendChunk(facts, true,
              Choice(true, fmt::format(R"({{"content":{}}})", QuoteJson(event.text)), {}), "",
              {.offset = event.byte_offset + event.text.size()}, out);
}

void ChatEnd(const StreamFacts& facts, const TextEvent& end, const std::string&, std::string* out) {
  AppendEnd(facts, true, end, out);
}

void Lost(const StreamFacts&, uint64_t offset, const std::string& why, std::string* out) {
  AppendSse("", ErrorJson(why), {.offset = offset}, out);
  AppendSse("", "[DONE]", {.offset = offset, .is_end = true}, out);
}

}  // namespace

const SseFormat kCompletionsFormat = {.name = "completions",
                                      .open = &NoOpening,
                                      .text = &CompletionText,
                                      .end = &CompletionEnd,
                                      .lost = &Lost};
const SseFormat kChatFormat = {
    .name = "chat", .open = &ChatOpening, .text = &ChatText, .end = &ChatEnd, .lost = &Lost};

}  // namespace specd::http
