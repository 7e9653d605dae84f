// The framing of OpenAI's Responses: named events with a sequence_number.
//
// A client that comes back has other pieces of text than before. The number of a delta is therefore
// the number of the last event before all text, and the offset of the byte after the delta: it
// grows from event to event, and is the same for everybody who has had as much.
#include <fmt/format.h>

#include "ipc/include/specd/specd.h"
#include "tools/http/sse_format.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {
namespace {

using toy::QuoteJson;

constexpr uint64_t kOpenings = 4;  // events before all text

// `fields` follow the type and the number.
void AppendEvent(std::string_view type, uint64_t number, std::string_view fields, const SseId& id,
                 std::string* out) {
  AppendSse(type, fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", type, number, fields),
            id, out);
}

std::string PartJson(const std::string& text) {
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[]}})",
                     QuoteJson(text));
}

std::string ItemJson(const StreamFacts& facts, std::string_view status, std::string_view content) {
  return fmt::format(
      R"({{"id":{},"type":"message","status":"{}","role":"assistant","content":[{}]}})",
      QuoteJson("msg_" + facts.request_id), status, content);
}

struct Outcome {
  std::string_view status = "in_progress";
  std::string output = "";
  std::string usage = "null";
  std::string error = "null";
  std::string incomplete = "null";
};

std::string ResponseJson(const StreamFacts& facts, const Outcome& outcome) {
  return fmt::format(
      R"({{"id":{},"object":"response","created_at":{},"status":"{}","error":{},)"
      R"("incomplete_details":{},"instructions":null,"max_output_tokens":null,"model":{},)"
      R"("output":[{}],"parallel_tool_calls":false,"previous_response_id":null,)"
      R"("temperature":null,"tool_choice":"none","tools":[],"top_p":null,)"
      R"("truncation":"disabled","usage":{},"metadata":{{}}}})",
      QuoteJson("resp_" + facts.request_id), facts.created_s, outcome.status, outcome.error,
      outcome.incomplete, QuoteJson(facts.model), outcome.output, outcome.usage);
}

std::string PlaceJson(const StreamFacts& facts) {
  return fmt::format(R"("item_id":{},"output_index":0,"content_index":0)",
                     QuoteJson("msg_" + facts.request_id));
}

void ResponsesOpening(const StreamFacts& facts, std::string* out) {
  const std::string response = R"("response":)" + ResponseJson(facts, {});
  AppendEvent("response.created", 0, response, {}, out);
  AppendEvent("response.in_progress", 1, response, {}, out);
  AppendEvent("response.output_item.added", 2,
              fmt::format(R"("output_index":0,"item":{})", ItemJson(facts, "in_progress", "")), {},
              out);
  AppendEvent("response.content_part.added", 3,
              fmt::format(R"({},"part":{})", PlaceJson(facts), PartJson("")), {}, out);
}

void ResponsesText(const StreamFacts& facts, const TextEvent& event, std::string* out) {
  const uint64_t offset = event.byte_offset + event.text.size();
  AppendEvent(
      "response.output_text.delta", kOpenings - 1 + offset,
      fmt::format(R"({},"delta":{},"logprobs":[])", PlaceJson(facts), QuoteJson(event.text)),
      {.offset = offset}, out);
}

Outcome OutcomeOf(const StreamFacts& facts, const TextEvent& end, const std::string& text) {
  Outcome outcome = {.status = "completed"};
  if (end.finish_reason == SPECD_FINISH_ERROR) {
    outcome.status = "failed";
    outcome.error = R"({"code":"server_error","message":"the sequence ended by an error"})";
  } else if (end.finish_reason == SPECD_FINISH_ABORT) {
    outcome.status = "cancelled";
  } else if (end.finish_reason == SPECD_FINISH_LENGTH) {
    outcome.status = "incomplete";
    outcome.incomplete = R"({"reason":"max_output_tokens"})";
  }
  const bool is_whole = outcome.status == "completed";
  outcome.output = ItemJson(facts, is_whole ? "completed" : "incomplete", PartJson(text));
  outcome.usage = fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0,"cache_write_tokens":0}},)"
      R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
      facts.prompt_tokens, end.tokens, end.reasoning_tokens, facts.prompt_tokens + end.tokens);
  return outcome;
}

void ResponsesEnd(const StreamFacts& facts, const TextEvent& end, const std::string& text,
                  std::string* out) {
  const Outcome outcome = OutcomeOf(facts, end, text);
  const SseId id = {.offset = end.byte_offset};
  const uint64_t number = kOpenings + end.byte_offset;
  AppendEvent("response.output_text.done", number,
              fmt::format(R"({},"text":{},"logprobs":[])", PlaceJson(facts), QuoteJson(text)), id,
              out);
  AppendEvent("response.content_part.done", number + 1,
              fmt::format(R"({},"part":{})", PlaceJson(facts), PartJson(text)), id, out);
  AppendEvent("response.output_item.done", number + 2,
              fmt::format(R"("output_index":0,"item":{})", outcome.output), id, out);
  // OpenAI has no event for a cancelled response, which is asked for by other means there.
  const std::string_view type = outcome.status == "cancelled"    ? "response.incomplete"
                                : outcome.status == "failed"     ? "response.failed"
                                : outcome.status == "incomplete" ? "response.incomplete"
                                                                 : "response.completed";
  AppendEvent(type, number + 3, R"("response":)" + ResponseJson(facts, outcome),
              {.offset = end.byte_offset, .is_end = true}, out);
}

void ResponsesLost(const StreamFacts&, uint64_t offset, const std::string& why, std::string* out) {
  AppendEvent("error", kOpenings + offset,
              fmt::format(R"("code":"server_error","message":{},"param":null)", QuoteJson(why)),
              {.offset = offset, .is_end = true}, out);
}

}  // namespace

const SseFormat kResponsesFormat = {.name = "responses",
                                    .repeats_text = true,
                                    .open = &ResponsesOpening,
                                    .text = &ResponsesText,
                                    .end = &ResponsesEnd,
                                    .lost = &ResponsesLost};

}  // namespace specd::http
