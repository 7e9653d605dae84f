// specd's own framing: one JSON object for each event, with the names of docs/PROTOCOL.md.
#include <fmt/format.h>

#include "tools/http/sse_format.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {
namespace {

using toy::QuoteJson;

std::string BeginJson(std::string_view kind, const StreamFacts& facts) {
  return fmt::format(R"({{"kind":"{}","rid":{})", kind, QuoteJson(facts.request_id));
}

void SpecdOpening(const StreamFacts& facts, std::string* out) {
  AppendSse("", BeginJson("open", facts) + "}", {}, out);
}

void SpecdText(const StreamFacts& facts, const TextEvent& event, std::string* out) {
  std::string spans;
  for (const WireSpan& span : event.spans) {
    spans += fmt::format("{}[{},{}]", spans.empty() ? "" : ",", span.size_bytes,
                         (span.accepted ? 1 : 0) | (span.reasoning ? 2 : 0));
  }
  AppendSse("",
            fmt::format(R"({},"byte_offset":{},"tokens":{},"text":{},"spans":[{}]}})",
                        BeginJson("text", facts), event.byte_offset, event.tokens,
                        QuoteJson(event.text), spans),
            {.offset = event.byte_offset + event.text.size()}, out);
}

void SpecdEnd(const StreamFacts& facts, const TextEvent& end, const std::string&,
              std::string* out) {
  // A checksum does not fit into the numbers of JavaScript.
  AppendSse("",
            fmt::format(R"({},"byte_offset":{},"tokens":{},"finish":"{}","stop":{},"rounds":{},)"
                        R"("accepted":{},"reasoning_tokens":{},"late":{},"checksum":"{}"}})",
                        BeginJson("end", facts), end.byte_offset, end.tokens, FinishName(end),
                        StopJson(end), end.rounds, end.accepted, end.reasoning_tokens, end.late,
                        end.checksum),
            {.offset = end.byte_offset, .is_end = true}, out);
}

void SpecdLost(const StreamFacts& facts, uint64_t offset, const std::string& why,
               std::string* out) {
  AppendSse("",
            fmt::format(R"({},"byte_offset":{},"why":{}}})", BeginJson("lost", facts), offset,
                        QuoteJson(why)),
            {.offset = offset, .is_end = true}, out);
}

}  // namespace

const SseFormat kSpecdFormat = {.name = "specd",
                                .open = &SpecdOpening,
                                .text = &SpecdText,
                                .end = &SpecdEnd,
                                .lost = &SpecdLost};

}  // namespace specd::http
