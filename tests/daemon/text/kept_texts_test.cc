// KeptTexts gives the text of a stream again, from bytes or tokens on, within its bounds.
#include "daemon/text/kept_texts.h"

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <utility>

#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

TextEvent Event(TextEventKind kind, std::string text, bool accepted = false) {
  TextEvent event;
  event.kind = kind;
  event.stream = 1;
  event.request_id = "r";
  event.text = std::move(text);
  if (!event.text.empty()) {
    event.spans = {{static_cast<uint32_t>(event.text.size()), accepted}};
  }
  return event;
}

// The text "a€bc": two tokens have "a", the third "€", the last "bc".
struct Fixture {
  explicit Fixture(const KeepLimits& limits = {}) : kept(limits) {
    TextEvent open = Event(TextEventKind::kOpen, "");
    kept.Take(open, 0);
    Add(Event(TextEventKind::kText, "a"), 2);
    Add(Event(TextEventKind::kText, "€", true), 3);
  }
  void Add(TextEvent event, uint64_t tokens) {
    event.token_offset = has_tokens;
    event.tokens = has_tokens = tokens;
    event.byte_offset = has_bytes;
    has_bytes += event.text.size();
    event.finish_reason = SPECD_FINISH_STOP;
    event.checksum = 7;
    kept.Take(event, 0);
  }
  void End() { Add(Event(TextEventKind::kEnd, "bc"), 4); }
  TextAnswer From(uint64_t offset, bool by_tokens = false) const {
    auto answer = kept.Answer(
        {.kind = AskKind::kFrom, .stream = 1, .offset = offset, .by_tokens = by_tokens});
    REQUIRE(answer.ok());
    return *answer;
  }
  std::string WhyNot(uint64_t stream, uint64_t offset) const {
    const auto answer = kept.Answer({.kind = AskKind::kFrom, .stream = stream, .offset = offset});
    return std::string(answer.status().message());
  }

  KeptTexts kept;
  uint64_t has_tokens = 0;
  uint64_t has_bytes = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("the kept end of a scored stream has no scores, whose text is another event's") {
    Fixture f;
    TextEvent end = Event(TextEventKind::kEnd, "bc");
    end.scores = {{.id = 7, .value = -0.5f}};
    end.score_bytes = {"bc"};
    f.Add(std::move(end), 4);
    const TextAnswer answer = f.From(0);
    REQUIRE(answer.events.size() == 3);
    CHECK(answer.events[1].text == "a€bc");
    CHECK(answer.events[2].kind == TextEventKind::kEnd);
    for (const TextEvent& event : answer.events) {
      CHECK(event.scores.empty());
      CHECK(event.score_bytes.empty());
    }
  }

  TEST_CASE("texts: all of a stream in one event, with its spans and its end") {
    Fixture f;
    f.End();
    CHECK(f.kept.HasEnded(1));
    const TextAnswer all = f.From(0);
    REQUIRE(all.events.size() == 3);
    CHECK(all.events[0].kind == TextEventKind::kOpen);
    CHECK(all.events[1].text == "a€bc");
    CHECK(all.events[1].token_offset == 0);
    CHECK(all.events[1].tokens == 4);
    REQUIRE(all.events[1].spans.size() == 3);
    CHECK(all.events[1].spans[1].size_bytes == 3);
    CHECK(all.events[1].spans[1].accepted);
    CHECK(all.events[2].kind == TextEventKind::kEnd);
    CHECK(all.events[2].text.empty());
    CHECK(all.events[2].byte_offset == 6);
    CHECK(all.events[2].checksum == 7);
  }

  TEST_CASE("texts: from a byte, and from a token on") {
    Fixture f;
    TextAnswer rest = f.From(1);
    REQUIRE(rest.events.size() == 1);
    CHECK(rest.events[0].text == "€");
    CHECK(rest.events[0].token_offset == 2);
    CHECK(rest.events[0].byte_offset == 1);
    CHECK(f.From(4).events.empty());
    f.End();
    rest = f.From(4);
    REQUIRE(rest.events.size() == 2);
    CHECK(rest.events[0].text == "bc");
    CHECK(rest.events[0].spans.size() == 1);
    // The text of the first two tokens is "a", and of one alone none is certain.
    CHECK(f.From(2, true).events[0].text == "€bc");
    CHECK(f.From(1, true).events[1].text == "a€bc");
    CHECK(f.From(4, true).events.size() == 1);
    // A stop string may have ended the text before tokens that a reader of ids has.
    CHECK(f.From(9, true).events.size() == 1);
  }

  TEST_CASE("texts: a long text comes in parts that end where events ended") {
    KeptTexts kept({});
    kept.Take(Event(TextEventKind::kOpen, ""), 0);
    const std::string piece(1000, 'x');
    for (uint64_t i = 0; i < 1000; ++i) {
      TextEvent event = Event(TextEventKind::kText, piece);
      event.byte_offset = 1000 * i;
      event.tokens = i + 1;
      kept.Take(event, 0);
    }
    Ask ask = {.kind = AskKind::kFrom, .stream = 1};
    uint64_t bytes = 0;
    size_t parts = 0;
    for (bool is_more = true; is_more; ++parts) {
      const auto answer = kept.Answer(ask);
      REQUIRE(answer.ok());
      const TextEvent& event = answer->events.back();
      CHECK(event.byte_offset == bytes);
      CHECK(event.text.size() % 1000 == 0);
      CHECK(event.text.size() <= kAnswerBytes);
      bytes += event.text.size();
      is_more = answer->next.has_value();
      if (is_more) ask.offset = answer->next->offset;
    }
    CHECK(bytes == 1'000'000);
    CHECK(parts == 4);
  }
}

TEST_SUITE("fault") {
  TEST_CASE("texts: what cannot be given is refused by its name") {
    Fixture f;
    CHECK(Mentions(f.WhyNot(2, 0), "stream = 2 is not kept"));
    CHECK(Mentions(f.WhyNot(1, 5), "offset = 5 is outside 0 .. 4"));
    CHECK(Mentions(f.WhyNot(1, 2), "offset = 2 is inside a code point"));
    // Bug: an ask for all streams was answered with half a character, and continued without a
    // stream that had gone.
    for (const auto& [stream, offset, why] : {std::tuple{1, 2, "offset = 2 is inside a code point"},
                                              {1, 5, "offset = 5 is outside 0 .. 4"},
                                              {7, 1, "stream = 7 is not kept"}}) {
      const auto answer = f.kept.Answer({.kind = AskKind::kStreams,
                                         .stream = static_cast<uint64_t>(stream),
                                         .offset = static_cast<uint64_t>(offset)});
      CHECK(Mentions(std::string(answer.status().message()), why));
    }
  }

  TEST_CASE("texts: names and stop strings count") {
    // Bug: the index of names, and the stop strings at the ends, took memory beside the bound.
    const auto bytes_of = [](size_t name_bytes, size_t stop_bytes) {
      KeptTexts kept({});
      TextEvent event = Event(TextEventKind::kOpen, "");
      event.request_id = std::string(name_bytes, 'n');
      kept.Take(event, 0);
      event.kind = TextEventKind::kEnd;
      event.stop_string = std::string(stop_bytes, 's');
      kept.Take(event, 0);
      return kept.bytes();
    };
    CHECK(bytes_of(128, 1) >= bytes_of(0, 1) + 4 * 128);  // opening, end, entry, index
    CHECK(bytes_of(0, 1000) >= bytes_of(0, 1) + 999);
  }

  TEST_CASE("texts: bytes are bounded, and what is over them is not kept") {
    Fixture f({.bytes_max = 10'000});
    for (int i = 0; i < 100; ++i) {
      f.Add(Event(TextEventKind::kText, std::string(1000, 'x')), 4 + i);
      REQUIRE(f.kept.bytes() <= 10'000);
    }
    CHECK(Mentions(f.WhyNot(1, 0), "found no room and was not kept"));
    // Bug: a reader that came late was told nothing of the stream.
    const auto answer = f.kept.Answer({.kind = AskKind::kStreams});
    REQUIRE(answer->events.size() == 2);
    CHECK(answer->events[0].kind == TextEventKind::kOpen);
    CHECK(answer->events[1].kind == TextEventKind::kText);
    CHECK(answer->events[1].byte_offset == 100'004);
    CHECK(answer->events[1].text.empty());
    CHECK(f.From(100'004).events.empty());  // that reader lacks nothing
  }
}

}  // namespace
}  // namespace specd
