#include "daemon/text/publisher.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/publisher_fixture.h"

namespace specd {
namespace {

// One letter per id.
Vocabulary LettersOf(uint32_t size) {
  Vocabulary::Builder builder;
  for (uint32_t i = 0; i < size; ++i) {
    builder.Set(static_cast<TokenId>(i), std::string(1, static_cast<char>('a' + i)), {});
  }
  return std::move(builder).Build();
}

TEST_SUITE("unit") {
  TEST_CASE("events of a stream are published in order, numbered, under one stream number") {
    PublisherFixture f;
    const SequenceHandle s = f.session.Open("r", 4);
    f.RunRound(s, Confirm(2, {1, 2, 5}));
    CHECK(f.publisher->Step());
    TokenBatch batch = f.Receive();
    CHECK(batch.epoch == kEpoch);
    CHECK(batch.seq == 1);
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[0].kind() == TokenEventKind::kOpen);
    CHECK(batch.events[0].opening()->request_id == "r");
    CHECK(batch.events[1].tokens()->ids == std::vector<TokenId>{1, 2, 5});
    CHECK(batch.events[1].tokens()->accepted == 2);
    CHECK(batch.events[1].stream == batch.events[0].stream);
    f.RunRound(s, Confirm(0, {7}));  // the EOS of the fixture's profile
    CHECK(f.publisher->Step());
    batch = f.Receive();
    CHECK(batch.seq == 2);
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[0].offset == 3);
    CHECK(batch.events[0].tokens()->stop_token == 7);
    CHECK(batch.events[1].kind() == TokenEventKind::kEnd);
    CHECK(batch.events[1].end()->finish_reason == SPECD_FINISH_STOP);
    CHECK(batch.events[1].offset == 4);
    CHECK_FALSE(f.publisher->Step());
  }

  TEST_CASE("an abort reaches its sequence and no other; one for another daemon reaches none") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const SequenceHandle a = f.OpenWithStop("a");
    const SequenceHandle b = f.OpenWithStop("b");
    f.RunRound(a, Confirm(2, {1, 2, 5}));
    f.RunRound(b, Confirm(2, {1, 2, 5}));
    f.publisher->Step();
    const TokenBatch batch = f.Receive();
    const uint64_t stream = batch.events[0].stream;
    f.SendAbort({kEpoch + 1, stream, 1, SPECD_FINISH_STOP});
    f.SendAbort({kEpoch, stream + 99, 1, SPECD_FINISH_STOP});
    f.SendAbort({kEpoch, stream, uint64_t{1} << 32, SPECD_FINISH_STOP});
    f.Send(kAbortTopic, "noise");
    f.Send("noise", "");
    f.publisher->Step();
    CHECK(f.FinishOf(a) == SPECD_FINISH_NONE);
    f.SendAbort({kEpoch, stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(f.FinishOf(a) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(a)).kept_tokens == 2);
    CHECK(f.FinishOf(b) == SPECD_FINISH_NONE);
  }

  TEST_CASE("the text side ends no stream whose stop strings it need not find") {
    // Bug: a text side that had lost ids aborted streams whose rounds find the stop strings, and a
    // late one cut their tokens.
    PublisherFixture f;
    f.session.profile.vocabulary = LettersOf(SessionFixture::kLimits.vocab_size);
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const std::array<SequenceHandle, 2> of = {f.OpenWithStop("r", 1000, StopSearch::kInline),
                                              f.session.Open("plain")};
    for (const SequenceHandle sequence : of) f.RunRound(sequence, Confirm(2, {1, 2, 5}));
    f.publisher->Step();
    const TokenBatch batch = f.Receive();
    const auto hear = [&f, &batch](FinishReason reason) {
      for (const TokenEvent& event : batch.events) {
        f.SendAbort({kEpoch, event.stream, 1, static_cast<uint32_t>(reason)});
      }
      f.publisher->Step();
    };
    hear(FinishReason::kAbort);
    hear(FinishReason::kStop);
    for (const SequenceHandle sequence : of) {
      CHECK(f.FinishOf(sequence) == SPECD_FINISH_NONE);
      REQUIRE(f.session.session->AbortSequence(sequence).ok());
    }
    hear(FinishReason::kStop);
    for (const SequenceHandle sequence : of) {
      CHECK(f.FinishOf(sequence) == SPECD_FINISH_ABORT);
      CHECK(f.session.engine->ReadState(SlotOf(sequence)).kept_tokens == 3);
    }
  }

  TEST_CASE("an abort for a stream that has ended and whose slot is in use again hits nobody") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const SequenceHandle old = f.OpenWithStop("old");
    f.publisher->Step();
    const uint64_t stream = f.Receive().events[0].stream;
    REQUIRE(f.session.session->CloseSequence(old).ok());
    const SequenceHandle fresh = f.session.Open("fresh");
    REQUIRE(SlotOf(fresh) == SlotOf(old));
    f.SendAbort({kEpoch, stream, 0, SPECD_FINISH_ABORT});
    f.publisher->Step();
    CHECK(f.FinishOf(fresh) == SPECD_FINISH_NONE);
  }

  TEST_CASE("a heartbeat names the last message and the open streams") {
    PublisherFixture f;
    f.session.Open("a");
    f.publisher->Step();
    f.Receive();
    f.session.clock.AdvanceNs(199'999'999);
    f.publisher->Step();
    CHECK_FALSE(f.TryHeartbeat(absl::Milliseconds(1)).has_value());
    f.session.clock.AdvanceNs(1);
    f.publisher->Step();
    const std::optional<Heartbeat> heartbeat = f.TryHeartbeat(absl::Seconds(30));
    REQUIRE(heartbeat.has_value());
    CHECK(heartbeat->epoch == kEpoch);
    CHECK(heartbeat->seq == 1);
    CHECK(heartbeat->streams == 1);
  }

  TEST_CASE("an ended session leaves the list once its last event is out, and is freed") {
    PublisherFixture f;
    f.session.Open("r");
    std::weak_ptr<Session> alive = f.session.session;
    f.session.session->EndAll();
    f.session.session.reset();
    CHECK(f.publisher->Step());
    const TokenBatch batch = f.Receive();
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[1].end()->finish_reason == SPECD_FINISH_ABORT);
    f.publisher->Step();
    CHECK(alive.expired());
    SessionList::Snapshot snapshot;
    uint64_t version = 0;
    f.list.Refresh(&version, &snapshot);
    CHECK(snapshot.empty());
  }

  TEST_CASE("openings with long stop strings do not make a message that nobody may decode") {
    PublisherFixture f;
    SequenceParams params;
    params.stop_strings = {std::string(32 * 1024, 'x')};
    uint64_t opens = 0;
    for (int i = 0; i < 200; ++i) {
      auto info = f.session.session->OpenSequences("r" + std::to_string(i), params);
      REQUIRE(info.ok());
      REQUIRE(f.session.session->CloseSequence(info->front().handle).ok());
    }
    f.publisher->Step();
    while (opens < 200) {
      for (const TokenEvent& event : f.Receive().events) {
        opens += event.opening() != nullptr ? 1 : 0;
      }
    }
    CHECK(opens == 200);
  }

  TEST_CASE("more events than one message may carry come in several, in order") {
    PublisherFixture f;
    const SequenceHandle s = f.session.Open("r", 1'000'000);
    for (int i = 0; i < 1500; ++i) f.RunRound(s, Confirm(0, {1}));
    f.publisher->Step();
    uint64_t next = 0;
    for (uint64_t seq = 1; next < 1500; ++seq) {
      const TokenBatch batch = f.Receive();
      CHECK(batch.seq == seq);
      CHECK(batch.events.size() <= 1024);
      for (const TokenEvent& event : batch.events) {
        if (event.tokens() != nullptr) CHECK(event.offset == next++);
      }
    }
  }

  TEST_CASE("an opening carries what the text side needs, and every event its time") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    const int64_t start_ns = f.session.clock.NowNs();
    SequenceParams params;
    params.stop_strings = {"x", "yz"};
    params.include_stop = true;
    params.skip_special_tokens = false;
    params.min_tokens = 3;
    auto first = f.session.session->OpenSequences("a", params);
    REQUIRE(first.ok());
    params.include_stop = false;
    params.skip_special_tokens = true;
    params.min_tokens = 0;
    REQUIRE(f.session.session->OpenSequences("b", params).ok());
    f.session.clock.AdvanceNs(500);
    f.RunRound(first->front().handle, Confirm(0, {1}));
    f.publisher->Step();
    const TokenBatch batch = f.Receive();
    REQUIRE(batch.events.size() == 3);
    CHECK(batch.events[0].opening()->stop_strings == std::vector<std::string>{"x", "yz"});
    CHECK(batch.events[0].opening()->include_stop);
    CHECK(batch.events[0].opening()->min_tokens == 3);
    CHECK_FALSE(batch.events[0].opening()->skip_special_tokens);
    CHECK(batch.events[0].time_ns == static_cast<uint64_t>(start_ns));
    CHECK_FALSE(batch.events[1].opening()->include_stop);
    CHECK(batch.events[1].opening()->min_tokens == 0);
    CHECK(batch.events[1].opening()->skip_special_tokens);
    CHECK(batch.events[2].time_ns == static_cast<uint64_t>(start_ns) + 500);
  }

  TEST_CASE("a message of one or of three frames is no abort") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const SequenceHandle s = f.OpenWithStop("r");
    f.publisher->Step();
    std::string payload;
    AppendAbortRequest({kEpoch, f.Receive().events[0].stream, 0, SPECD_FINISH_ABORT}, &payload);
    for (const std::vector<std::string_view>& frames :
         {std::vector<std::string_view>{payload},
          std::vector<std::string_view>{kAbortTopic, payload, ""}}) {
      REQUIRE(f.aborts.Send(frames).ok());
    }
    f.publisher->Step();
    CHECK(f.FinishOf(s) == SPECD_FINISH_NONE);
    f.Send(kAbortTopic, payload);
    f.publisher->Step();
    CHECK(f.FinishOf(s) == SPECD_FINISH_ABORT);
  }
}

}  // namespace
}  // namespace specd
