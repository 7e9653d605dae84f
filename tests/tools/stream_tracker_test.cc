#include "tools/toy_client/stream_tracker.h"

#include <doctest/doctest.h>

#include <string>

namespace specd::toy {
namespace {

// Events of one publisher, numbered as it would number them.
class Publisher {
 public:
  TextEvent Open(const std::string& request_id) { return Event(TextEventKind::kOpen, request_id); }

  TextEvent Text(const std::string& request_id, uint64_t byte_offset, const std::string& text) {
    TextEvent event = Event(TextEventKind::kText, request_id);
    event.byte_offset = byte_offset;
    event.text = text;
    event.spans = {{static_cast<uint32_t>(text.size()), false}};
    return event;
  }

  TextEvent End(const std::string& request_id, uint64_t byte_offset) {
    TextEvent event = Event(TextEventKind::kEnd, request_id);
    event.byte_offset = byte_offset;
    return event;
  }

  Heartbeat Beat() const { return {.epoch = kEpoch, .seq = seq_, .streams = 0}; }

  static constexpr uint64_t kEpoch = 9;

 private:
  TextEvent Event(TextEventKind kind, const std::string& request_id) {
    TextEvent event;
    event.kind = kind;
    event.epoch = kEpoch;
    event.seq = ++seq_;
    event.request_id = request_id;
    event.stream = std::hash<std::string>{}(request_id);
    return event;
  }

  uint64_t seq_ = 100;  // The subscription came late; the numbers began long before it.
};

absl::StatusCode CodeOf(const absl::StatusOr<Novelty>& result) { return result.status().code(); }

Novelty MustTake(StreamTracker& tracker, TextEvent event) {
  const absl::StatusOr<Novelty> novelty = tracker.Take(&event);
  REQUIRE_MESSAGE(novelty.ok(), std::string(novelty.status().message()));
  return *novelty;
}

TEST_SUITE("unit") {
  TEST_CASE("whole streams are new from end to end, and are counted") {
    Publisher publisher;
    StreamTracker tracker(true);
    CHECK(tracker.Take(publisher.Beat()).ok());
    CHECK(MustTake(tracker, publisher.Open("a")) == Novelty::kNew);
    CHECK(MustTake(tracker, publisher.Open("b")) == Novelty::kNew);
    CHECK(MustTake(tracker, publisher.Text("a", 0, "xyz")) == Novelty::kNew);
    CHECK(MustTake(tracker, publisher.End("a", 3)) == Novelty::kNew);
    CHECK(tracker.num_ended() == 1);
    CHECK(tracker.Take(publisher.Beat()).ok());
    // The name may be used again, from the beginning.
    CHECK(MustTake(tracker, publisher.Open("a")) == Novelty::kNew);
    CHECK(MustTake(tracker, publisher.Text("a", 0, "new")) == Novelty::kNew);
  }

  TEST_CASE("scores without text are new once") {
    Publisher publisher;
    StreamTracker tracker(true);
    MustTake(tracker, publisher.Open("a"));
    TextEvent scored = publisher.Text("a", 0, "");
    scored.tokens = 1;
    scored.scores = {{.id = 7, .value = -0.5f, .rank = 1}};
    CHECK(MustTake(tracker, scored) == Novelty::kNew);
    scored.seq = publisher.Text("a", 0, "").seq;  // the same message again
    CHECK(MustTake(tracker, scored) == Novelty::kNothing);
    CHECK(MustTake(tracker, publisher.Text("a", 0, "")) == Novelty::kNothing);
    scored = publisher.Text("a", 0, "");
    scored.token_offset = 1;
    scored.tokens = 2;
    scored.scores = {{.id = 8, .value = -0.25f, .rank = 1}};
    CHECK(MustTake(tracker, scored) == Novelty::kNew);
  }

  TEST_CASE("a hole in the bytes of a stream is a loss") {
    Publisher publisher;
    StreamTracker tracker(false);
    MustTake(tracker, publisher.Open("a"));
    MustTake(tracker, publisher.Text("a", 0, "xyz"));
    TextEvent late = publisher.Text("a", 5, "q");
    const absl::StatusOr<Novelty> result = tracker.Take(&late);
    CHECK(CodeOf(result) == absl::StatusCode::kDataLoss);
    CHECK(std::string(result.status().message()).find("2 bytes of \"a\"") == 0);
  }

  TEST_CASE("text that is known is cut off the front, with its spans") {
    Publisher publisher;
    StreamTracker tracker(false);
    MustTake(tracker, publisher.Open("a"));
    MustTake(tracker, publisher.Text("a", 0, "abcd"));
    CHECK(MustTake(tracker, publisher.Text("a", 1, "bc")) == Novelty::kNothing);
    TextEvent event = publisher.Text("a", 2, "cdefg");
    event.spans = {{1, false}, {2, true}, {2, false}};
    REQUIRE(tracker.Take(&event).ok());
    CHECK(event.text == "efg");
    CHECK(event.byte_offset == 4);
    REQUIRE(event.spans.size() == 2);
    CHECK(event.spans[0].size_bytes == 1);
    CHECK(event.spans[0].accepted);
    CHECK(event.spans[1].size_bytes == 2);
  }

  TEST_CASE("who sees all streams notices every lost event") {
    Publisher publisher;
    StreamTracker tracker(true);
    MustTake(tracker, publisher.Open("a"));
    publisher.Open("lost");
    TextEvent event = publisher.Text("a", 0, "x");
    CHECK(CodeOf(tracker.Take(&event)) == absl::StatusCode::kDataLoss);
  }

  TEST_CASE("the heartbeat shows the loss of the last event") {
    Publisher publisher;
    StreamTracker tracker(true);
    MustTake(tracker, publisher.Open("a"));
    CHECK(tracker.Take(publisher.Beat()).ok());
    publisher.End("a", 0);  // lost
    CHECK(absl::IsDataLoss(tracker.Take(publisher.Beat())));
  }

  TEST_CASE("who sees one stream takes holes in the numbers for other streams") {
    Publisher publisher;
    StreamTracker tracker(false);
    MustTake(tracker, publisher.Open("a"));
    publisher.Open("other");
    CHECK(MustTake(tracker, publisher.Text("a", 0, "x")) == Novelty::kNew);
    publisher.End("other", 0);
    CHECK(tracker.Take(publisher.Beat()).ok());
  }

  TEST_CASE("a stream that had begun before is joined where it is, once") {
    Publisher publisher;
    StreamTracker tracker(true);
    CHECK(MustTake(tracker, publisher.Text("a", 50, "x")) == Novelty::kJoinedLate);
    CHECK(MustTake(tracker, publisher.Text("a", 51, "y")) == Novelty::kNew);
    CHECK(MustTake(tracker, publisher.End("b", 7)) == Novelty::kJoinedLate);
    CHECK(tracker.num_ended() == 1);
  }

  // Bug: the client took the first events of every daemon for a restart. A publisher's heartbeats
  // say epoch 0 until the daemon has sent an event.
  TEST_CASE("epoch 0 is no run of the daemon yet") {
    Publisher publisher;
    StreamTracker tracker(true);
    Heartbeat beat = publisher.Beat();
    beat.epoch = 0;
    CHECK(tracker.Take(beat).ok());
    CHECK(MustTake(tracker, publisher.Open("a")) == Novelty::kNew);
    CHECK(tracker.Take(beat).ok());
  }

  TEST_CASE("another run of the daemon is not taken for the same one") {
    Publisher publisher;
    StreamTracker tracker(false);
    MustTake(tracker, publisher.Open("a"));
    TextEvent event = publisher.Text("a", 0, "x");
    event.epoch = Publisher::kEpoch + 1;
    CHECK(CodeOf(tracker.Take(&event)) == absl::StatusCode::kAborted);
    Heartbeat beat = publisher.Beat();
    beat.epoch = Publisher::kEpoch + 1;
    CHECK(absl::IsAborted(tracker.Take(beat)));
  }
}

}  // namespace
}  // namespace specd::toy
