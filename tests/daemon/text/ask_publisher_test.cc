// A publisher gives events again to those who ask, and aborts what it is asked to.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ipc/events/ask.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/publisher_fixture.h"

namespace specd {
namespace {

struct Fixture : PublisherFixture {
  Fixture() : asks(MakeSocket(&context, ZmqKind::kRequest)) {
    REQUIRE(asks.Connect("inproc://ask").ok());
  }
  absl::StatusOr<TokenAnswer> Answer(const Ask& ask) {
    std::string payload;
    AppendAsk(ask, &payload);
    return DecodeTokenAnswer(Reply(payload));
  }
  std::string Reply(std::string_view payload) {
    const std::array<std::string_view, 1> frames = {payload};
    REQUIRE(*asks.Send(frames));
    publisher->Step();
    std::vector<std::string> reply;
    auto received = asks.Receive(&reply, absl::Seconds(30));
    REQUIRE(received.ok());
    REQUIRE(*received);
    REQUIRE(reply.size() == 1);
    return reply[0];
  }
  std::string WhyNot(const Ask& ask) { return std::string(Answer(ask).status().message()); }

  ZmqSocket asks;
};

TEST_SUITE("unit") {
  TEST_CASE("ask: events that were lost are given again as they were published") {
    Fixture f;
    const SequenceHandle sequence = f.session.Open("r");
    f.RunRound(sequence, Confirm(2, {1, 2, 5}));
    f.RunRound(sequence, Confirm(0, {6}));
    f.publisher->Step();
    const TokenBatch batch = f.Receive();
    REQUIRE(batch.events.size() == 3);
    auto answer = f.Answer({.kind = AskKind::kFrom, .stream = batch.events[0].stream});
    REQUIRE(answer.ok());
    CHECK(answer->epoch == kEpoch);
    CHECK(answer->seq == batch.seq);
    REQUIRE(answer->events.size() == 3);
    CHECK(answer->events[0].opening()->request_id == "r");
    for (size_t i = 1; i < 3; ++i) {
      CHECK(answer->events[i].tokens()->ids == batch.events[i].tokens()->ids);
      CHECK(answer->events[i].offset == batch.events[i].offset);
      CHECK(answer->events[i].tokens()->accepted == batch.events[i].tokens()->accepted);
    }
    // The end, too, after its session has gone.
    f.session.session->End();
    answer = f.Answer({.kind = AskKind::kFrom,
                       .stream = batch.events[0].stream,
                       .offset = batch.events[2].offset});
    REQUIRE(answer.ok());
    REQUIRE(answer->events.size() == 2);
    CHECK(answer->events[1].kind() == TokenEventKind::kEnd);
    CHECK(answer->events[1].end()->finish_reason == SPECD_FINISH_ABORT);
    CHECK(answer->events[1].end()->checksum != 0);
    f.PassTime(60'000'000'000);
    CHECK(
        f.WhyNot({.kind = AskKind::kFrom, .stream = batch.events[0].stream}).find("--keep_ended") !=
        std::string::npos);
  }

  TEST_CASE("ask: a stream is aborted by its request id, and the asker hears whether it was") {
    Fixture f;
    const SequenceHandle sequence = f.session.Open("r");
    f.publisher->Step();
    CHECK(f.WhyNot({.kind = AskKind::kAbort, .request_id = "other"})
              .find("rid = \"other\" is the request id of no stream") != std::string::npos);
    CHECK(f.FinishOf(sequence) == SPECD_FINISH_NONE);
    CHECK(f.Answer({.kind = AskKind::kAbort, .request_id = "r"}).ok());
    CHECK(f.FinishOf(sequence) == SPECD_FINISH_ABORT);
    f.publisher->Step();
    CHECK_FALSE(f.Answer({.kind = AskKind::kAbort, .request_id = "r"}).ok());
  }
}

TEST_SUITE("fault") {
  TEST_CASE("ask: bytes that are no ask get a sentence") {
    Fixture f;
    for (const std::string_view bytes : {"", "\xc1", "\x93\x93\x93", "{}"}) {
      CHECK(absl::IsNotFound(DecodeTokenAnswer(f.Reply(bytes)).status()));
    }
  }
}

}  // namespace
}  // namespace specd
