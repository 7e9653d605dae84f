// SseFormat says how many tokens and which bytes are of the thought.
#include "tools/http/sse_format.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/tools/http/http_events.h"

namespace specd::http {

TEST_SUITE("unit") {
  TEST_CASE("each framing has the number of tokens of the thought") {
    TextEvent end = Event(TextEventKind::kEnd, 1, 9, "").event;
    end.accepted = 5;
    end.reasoning_tokens = 4;
    const StreamFacts facts = {.request_id = "r", .has_usage = true};
    const std::string openai =
        R"("completion_tokens_details":{"accepted_prediction_tokens":5,"reasoning_tokens":4})";
    struct Case {
      const SseFormat* format;
      std::string expected;
    };
    for (const Case& each :
         {Case{&kCompletionsFormat, openai}, Case{&kChatFormat, openai},
          Case{&kResponsesFormat, R"("output_tokens_details":{"reasoning_tokens":4})"},
          Case{&kSpecdFormat, R"("accepted":5,"reasoning_tokens":4)"}}) {
      CAPTURE(each.format->name);
      std::string out;
      each.format->end(facts, end, "", &out);
      CHECK(out.find(each.expected) != std::string::npos);
    }
  }

  // The sums of docs/PROTOCOL.md, "Text event".
  TEST_CASE("the kind of a span is a sum: 1 accepted, 2 of the thought") {
    TextEvent text = Event(TextEventKind::kText, 1, 0, "0123456789").event;
    text.spans = {{1, false, false}, {2, true, false}, {3, false, true}, {4, true, true}};
    std::string out;
    kSpecdFormat.text({.request_id = "r"}, text, &out);
    CHECK(out.find(R"("spans":[[1,0],[2,1],[3,2],[4,3]])") != std::string::npos);
  }
}

}  // namespace specd::http
