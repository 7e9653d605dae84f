// TextHub keeps one text for all clients, and tells each what it has not had.
#include "tools/http/text_hub.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/tools/http/http_events.h"
#include "tools/http/stream_events.h"

namespace specd::http {
namespace {

std::string TextFrom(const TextHub& hub, uint64_t stream, uint64_t offset) {
  const auto part = hub.From(stream, offset);
  REQUIRE(part.ok());
  std::string text;
  for (const TextEvent& event : part->events) text += event.text;
  return text;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a client gets what it has not had, and one that knows more waits") {
    int news = 0;
    TextHub hub({}, 1, [&news] { ++news; });
    CHECK_FALSE(hub.is_current());
    hub.Take(0, {}, true, 0);
    CHECK(hub.is_current());
    CHECK(news == 0);
    hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, ""), Event(TextEventKind::kText, 1, 0, "ab")},
             true, 0);
    CHECK(news == 1);
    const auto stream = hub.Find("r");
    REQUIRE(stream.has_value());
    CHECK(TextFrom(hub, *stream, 0) == "ab");
    CHECK(TextFrom(hub, *stream, 1) == "b");
    // specd-http was started anew, and has read less of a stream than its client.
    CHECK(TextFrom(hub, *stream, 7).empty());
    hub.Take(0, {Event(TextEventKind::kEnd, 1, 2, "c")}, true, 0);
    CHECK(TextFrom(hub, *stream, 2) == "c");
    CHECK(hub.TextOf(*stream).value() == "abc");
    CHECK_FALSE(hub.From(*stream, 7).ok());
  }

  TEST_CASE(
      "the streams of two readers have numbers of their own, and a name is the newest one's") {
    TextHub hub({}, 2, [] {});
    hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, "", "a")}, true, 0);
    CHECK_FALSE(hub.is_current());
    hub.Take(1, {Event(TextEventKind::kOpen, 1, 0, "", "b")}, true, 0);
    CHECK(hub.is_current());
    CHECK(hub.Find("a") != hub.Find("b"));
    const auto first = hub.Find("a");
    hub.Take(
        0, {Event(TextEventKind::kEnd, 1, 0, "x", "a"), Event(TextEventKind::kOpen, 2, 0, "", "a")},
        true, 0);
    CHECK(hub.Find("a") != first);
    CHECK(hub.Streams().size() == 2);
  }

  TEST_CASE("a slow client gets in one piece what a quick one gets in many") {
    TextHub hub({}, 1, [] {});
    hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, "")}, true, 0);
    StreamCursor quick(&hub, 1, &kSpecdFormat, {.request_id = "r"}, 0);
    StreamCursor slow = quick;
    std::string text;
    for (uint64_t i = 0; i < 1000; ++i) {
      hub.Take(0, {Event(TextEventKind::kText, 1, i, "x")}, true, 0);
      std::string piece;
      CHECK(quick.Next(&piece) == StreamState::kWait);
      CHECK(piece.find(R"("text":"x")") != std::string::npos);
      text += 'x';
    }
    hub.Take(0, {Event(TextEventKind::kEnd, 1, 1000, "")}, true, 0);
    std::string piece;
    CHECK(slow.Next(&piece) == StreamState::kEnd);
    CHECK(piece.find(R"("text":")" + text + '"') != std::string::npos);
    CHECK(piece.size() < 1600);
    CHECK(quick.Next(&piece) == StreamState::kEnd);
  }

  TEST_CASE("a stream that is lost says why, after the text that came") {
    TextHub hub({}, 1, [] {});
    ReadEvent lost = Event(TextEventKind::kText, 1, 2, "");
    lost.lost = "it is gone";
    hub.Take(0,
             {Event(TextEventKind::kOpen, 1, 0, ""), Event(TextEventKind::kText, 1, 0, "ab"), lost},
             true, 0);
    const auto part = hub.From(1, 0);
    REQUIRE(part.ok());
    CHECK(part->lost == "it is gone");
    CHECK(TextFrom(hub, 1, 0) == "ab");
  }

  TEST_CASE("what has ended is forgotten after its time, and so is its name") {
    TextHub hub({.bytes_max = size_t{1} << 20, .ended_ns = 10}, 1, [] {});
    for (uint64_t i = 1; i <= 3000; ++i) {
      const std::string name = "r" + std::to_string(i);
      hub.Take(0,
               {Event(TextEventKind::kOpen, i, 0, "", name),
                Event(TextEventKind::kEnd, i, 0, "x", name)},
               true, static_cast<int64_t>(i));
    }
    CHECK(hub.Streams().size() == 10);
    CHECK_FALSE(hub.Find("r1").has_value());
    CHECK(hub.Find("r3000").has_value());
  }
}

}  // namespace specd::http
