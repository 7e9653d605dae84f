#include "tools/http/sse_format.h"

#include <fmt/format.h>

#include "ipc/events/event_fields.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {

using toy::QuoteJson;

const SseFormat* FindFormat(std::string_view name) {
  for (const SseFormat* format :
       {&kCompletionsFormat, &kChatFormat, &kResponsesFormat, &kSpecdFormat}) {
    if (format->name == name) return format;
  }
  return nullptr;
}

void AppendSse(std::string_view name, std::string_view data, const SseId& id, std::string* out) {
  if (!name.empty()) *out += fmt::format("event: {}\n", name);
  *out += fmt::format("data: {}\nid: {}{}\n\n", data, id.offset, id.is_end ? ".end" : "");
}

std::string ErrorJson(const std::string& why) {
  return fmt::format(R"({{"error":{{"message":{},"type":"server_error","code":null}}}})",
                     QuoteJson(why));
}

std::string_view FinishName(const TextEvent& end) { return kFinishReasons.at(end.finish_reason); }

std::string StopJson(const TextEvent& end) {
  if (!end.stop_string.empty()) return QuoteJson(end.stop_string);
  return end.stop_token == kNoToken ? "null" : fmt::format("{}", end.stop_token);
}

}  // namespace specd::http
