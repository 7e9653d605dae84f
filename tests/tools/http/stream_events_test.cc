// StreamEvents give every text its end, or say that it is lost.
#include "tools/http/stream_events.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tests/tools/http/http_events.h"

namespace specd::http {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a page of all streams gets the rest of one whose name another has taken") {
    TextHub hub({}, 1, [] {});
    AllStreams all(&hub);
    hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, ""), Event(TextEventKind::kText, 1, 0, "ab")},
             true, 0);
    std::string out;
    all.Next(kSecond, &out);
    REQUIRE(Has(out, R"("text":"ab")"));
    hub.Take(0, {Event(TextEventKind::kEnd, 1, 2, "cd"), Event(TextEventKind::kOpen, 2, 0, "")},
             true, 0);
    out.clear();
    all.Next(2 * kSecond, &out);
    CHECK(Has(out, R"("text":"cd")"));
    CHECK(Has(out, R"("kind":"end","rid":"r","byte_offset":4)"));
    CHECK(Has(out, R"("kind":"open")"));
    out.clear();
    all.Next(3 * kSecond, &out);
    CHECK(out.empty());
  }

  TEST_CASE("a page of all streams shows those that run before those that had ended") {
    TextHub hub({}, 1, [] {});
    hub.Take(0,
             {Event(TextEventKind::kOpen, 1, 0, "", "over"),
              Event(TextEventKind::kEnd, 1, 0, "old", "over"),
              Event(TextEventKind::kOpen, 2, 0, "", "runs"),
              Event(TextEventKind::kText, 2, 0, "new", "runs")},
             true, 0);
    AllStreams all(&hub);
    std::string out;
    all.Next(kSecond, &out);
    REQUIRE(Has(out, "old"));
    CHECK(out.find("new") < out.find("old"));
  }

  TEST_CASE("a page of all streams is told of one that ended and is kept no more") {
    TextHub hub({.bytes_max = size_t{1} << 20, .ended_ns = 10}, 1, [] {});
    AllStreams all(&hub);
    hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, ""), Event(TextEventKind::kText, 1, 0, "ab")},
             true, 0);
    std::string out;
    all.Next(kSecond, &out);
    hub.Take(0, {Event(TextEventKind::kEnd, 1, 2, "cd")}, true, 0);
    hub.Take(0, {}, true, 100);
    out.clear();
    all.Next(2 * kSecond, &out);
    CHECK(Has(out, R"("kind":"lost","rid":"r","byte_offset":2,"why":"stream = 1 is not kept)"));
    out.clear();
    all.Next(3 * kSecond, &out);
    CHECK(out.empty());
  }

  TEST_CASE("a format that repeats the text fails if the text was not kept; the others end") {
    TextHub hub({.bytes_max = size_t{64} << 10}, 1, [] {});
    constexpr uint64_t kSize = 1 << 20;
    hub.Take(0,
             {Event(TextEventKind::kOpen, 1, 0, ""),
              Event(TextEventKind::kText, 1, 0, std::string(kSize, 'x')),
              Event(TextEventKind::kEnd, 1, kSize, "")},
             true, 0);
    for (const SseFormat* format :
         {&kCompletionsFormat, &kChatFormat, &kResponsesFormat, &kSpecdFormat}) {
      CAPTURE(format->name);
      StreamCursor cursor(&hub, 1, format, {.request_id = "r"}, kSize);
      std::string out;
      CHECK(cursor.Next(&out) == StreamState::kEnd);
      const bool is_lost = format == &kResponsesFormat;
      CHECK(Has(out, "event: error\n") == is_lost);
      CHECK(Has(out, "was not kept") == is_lost);
      CHECK_FALSE(Has(out, "response.completed"));
    }
  }
}

}  // namespace specd::http
