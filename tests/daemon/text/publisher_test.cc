#include "daemon/text/publisher.h"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/logging.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

constexpr uint64_t kEpoch = 77;

ZmqSocket MakeSocket(ZmqContext* context, ZmqKind kind) {
  auto socket = ZmqSocket::Make(context, kind, ZmqOptions{});
  REQUIRE(socket.ok());
  return *std::move(socket);
}

// A publisher over one session, and both ends of its sockets in the test's hand.
struct Fixture {
  Fixture()
      : context(*ZmqContext::Make()),
        publisher(MakePublisher()),
        tokens(MakeSocket(&context, ZmqKind::kSubscribe)),
        aborts(MakeSocket(&context, ZmqKind::kPush)) {
    REQUIRE(SetUpLogging({.levels = "off"}).ok());
    REQUIRE(tokens.Subscribe(kTokensTopic).ok());
    REQUIRE(tokens.Connect("inproc://tokens").ok());
    REQUIRE(aborts.Connect("inproc://aborts").ok());
    REQUIRE(tokens.Subscribe(kHeartbeatTopic).ok());
    // A socket that hears a heartbeat is subscribed.
    while (!TryHeartbeat(absl::Milliseconds(1)).has_value()) {
      session.clock.AdvanceNs(200'000'000);
      publisher->Step();
    }
    while (TryHeartbeat(absl::ZeroDuration()).has_value()) {
    }
    list.Add(session.session);
  }

  std::unique_ptr<Publisher> MakePublisher() {
    Publisher::Options options;
    options.sessions = &list;
    options.clock = &session.clock;
    options.context = &context;
    options.epoch = kEpoch;
    options.tokens_endpoints = {"inproc://tokens"};
    options.aborts_endpoints = {"inproc://aborts"};
    options.watch_text_side = true;
    auto made = Publisher::Create(options);
    REQUIRE(made.ok());
    return *std::move(made);
  }

  void RunRound(SequenceHandle sequence, ScriptedOutcome outcome) {
    session.backend->script = {std::move(outcome)};
    REQUIRE(session.Submit({sequence}) == PushResult::kOk);
    REQUIRE(session.session->Step());
    CompletionView done;
    REQUIRE(session.engine->Poll(&done));
  }

  std::optional<Heartbeat> TryHeartbeat(absl::Duration timeout) {
    std::vector<std::string> frames;
    auto received = tokens.Receive(&frames, timeout);
    REQUIRE(received.ok());
    if (!*received || frames[0] != kHeartbeatTopic) return std::nullopt;
    auto heartbeat = DecodeHeartbeat(frames[1]);
    REQUIRE(heartbeat.ok());
    return *heartbeat;
  }

  // The next batch of events; the publisher has been stepped before.
  TokenBatch Receive() {
    std::vector<std::string> frames = {std::string(kHeartbeatTopic)};
    while (frames[0] == kHeartbeatTopic) {
      auto received = tokens.Receive(&frames, absl::Seconds(30));
      REQUIRE(received.ok());
      REQUIRE(*received);
    }
    REQUIRE(frames.size() == 2);
    CHECK(frames[0] == kTokensTopic);
    auto batch = DecodeTokenBatch(frames[1]);
    REQUIRE(batch.ok());
    return *batch;
  }

  void SendAbort(const AbortRequest& request) {
    std::string payload;
    AppendAbortRequest(request, &payload);
    Send(kAbortTopic, payload);
  }

  void SendAlive(const SignOfLife& alive) {
    std::string payload;
    AppendSignOfLife(alive, &payload);
    Send(kAliveTopic, payload);
  }

  SequenceHandle OpenWithStop(const std::string& name) {
    SequenceParams params;
    params.stop_strings = {"x"};
    auto info = session.session->OpenSequences(name, params);
    REQUIRE(info.ok());
    return info->front().handle;
  }

  void Send(std::string_view topic, std::string_view payload) {
    const std::array<std::string_view, 2> frames = {topic, payload};
    auto sent = aborts.Send(frames);
    REQUIRE(sent.ok());
    REQUIRE(*sent);
  }

  uint32_t FinishOf(SequenceHandle sequence) {
    return session.engine->ReadState(SlotOf(sequence)).finish_reason;
  }

  SessionFixture session;
  SessionList list;
  ZmqContext context;
  std::unique_ptr<Publisher> publisher;
  ZmqSocket tokens;
  ZmqSocket aborts;
};

TEST_SUITE("unit") {
  TEST_CASE("events of a stream are published in order, numbered, under one stream number") {
    Fixture f;
    const SequenceHandle s = f.session.Open("r", 4);
    f.RunRound(s, Confirm(2, {1, 2, 5}));
    CHECK(f.publisher->Step());
    TokenBatch batch = f.Receive();
    CHECK(batch.epoch == kEpoch);
    CHECK(batch.seq == 1);
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[0].kind == TokenEventKind::kOpen);
    CHECK(batch.events[0].request_id == "r");
    CHECK(batch.events[1].ids == std::vector<TokenId>{1, 2, 5});
    CHECK(batch.events[1].accepted == 2);
    CHECK(batch.events[1].stream == batch.events[0].stream);
    f.RunRound(s, Confirm(0, {7}));  // the EOS of the fixture's profile
    CHECK(f.publisher->Step());
    batch = f.Receive();
    CHECK(batch.seq == 2);
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[0].offset == 3);
    CHECK(batch.events[0].stop_token == 7);
    CHECK(batch.events[1].kind == TokenEventKind::kEnd);
    CHECK(batch.events[1].finish_reason == SPECD_FINISH_STOP);
    CHECK(batch.events[1].offset == 4);
    CHECK_FALSE(f.publisher->Step());
  }

  TEST_CASE("an abort reaches its sequence and no other; one for another daemon reaches none") {
    Fixture f;
    const SequenceHandle a = f.session.Open("a");
    const SequenceHandle b = f.session.Open("b");
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

  TEST_CASE("issue 17, line 7: an end is final after the text side's last word, and not before") {
    Fixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const auto is_final = [&f](SequenceHandle sequence) {
      const SequenceState state = f.session.engine->ReadState(SlotOf(sequence));
      return f.session.engine->IsFinal(SlotOf(sequence), state);
    };
    const auto end = [&f](SequenceHandle sequence) {
      REQUIRE(f.session.session->AbortSequence(sequence).ok());
      f.publisher->Step();
    };
    const SequenceHandle plain = f.session.Open("plain");
    CHECK_FALSE(is_final(plain));
    end(plain);
    CHECK(is_final(plain));  // nothing is looked for in its text
    REQUIRE(f.session.session->CloseSequence(plain).ok());
    f.Receive();
    const SequenceHandle same = f.OpenWithStop("same");
    const SequenceHandle moved = f.OpenWithStop("moved");
    const SequenceHandle unheard = f.OpenWithStop("unheard");
    f.publisher->Step();
    const TokenBatch openings = f.Receive();
    REQUIRE(openings.events.size() == 3);
    for (const SequenceHandle s : {same, moved}) f.RunRound(s, Confirm(2, {1, 2, 5}));
    for (const SequenceHandle s : {same, moved, unheard}) end(s);
    for (const SequenceHandle s : {same, moved, unheard}) CHECK_FALSE(is_final(s));
    f.SendAbort({kEpoch, openings.events[0].stream, 3, SPECD_FINISH_NONE});
    f.SendAbort({kEpoch, openings.events[1].stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(is_final(same));
    CHECK(f.FinishOf(same) == SPECD_FINISH_ABORT);
    CHECK(is_final(moved));
    CHECK(f.FinishOf(moved) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(moved)).kept_tokens == 2);
    CHECK_FALSE(is_final(unheard));
    const SequenceHandle running = f.OpenWithStop("running");
    f.publisher->Step();
    f.SendAlive({kEpoch, 2});  // another text side, which knows nothing of these streams
    f.publisher->Step();
    CHECK(is_final(unheard));
    CHECK(f.FinishOf(running) == SPECD_FINISH_ABORT);
    CHECK(is_final(running));
  }

  TEST_CASE("an abort for a stream that has ended and whose slot is in use again hits nobody") {
    Fixture f;
    const SequenceHandle old = f.session.Open("old");
    f.publisher->Step();
    const uint64_t stream = f.Receive().events[0].stream;
    REQUIRE(f.session.session->CloseSequence(old).ok());
    const SequenceHandle fresh = f.session.Open("fresh");
    REQUIRE(SlotOf(fresh) == SlotOf(old));
    f.SendAbort({kEpoch, stream, 0, SPECD_FINISH_ABORT});
    f.publisher->Step();
    CHECK(f.FinishOf(fresh) == SPECD_FINISH_NONE);
  }

  TEST_CASE("the text side counts as alive for three seconds after it last said so") {
    Fixture f;
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.SendAlive({kEpoch + 1, 5});  // this text side hears another daemon
    f.publisher->Step();
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());
    f.session.clock.AdvanceNs(2'999'999'999);
    CHECK(f.publisher->TextSideAlive());
    f.session.clock.AdvanceNs(1);
    CHECK_FALSE(f.publisher->TextSideAlive());
  }

  TEST_CASE("when the text side is gone, or another one, streams with stop strings are aborted") {
    Fixture f;
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    const SequenceHandle plain = f.session.Open("plain");
    const SequenceHandle watched = f.OpenWithStop("watched");
    f.publisher->Step();
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.SendAlive({kEpoch, 6});
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(plain) == SPECD_FINISH_NONE);
    CHECK(f.publisher->TextSideAlive());

    const SequenceHandle later = f.OpenWithStop("later");
    f.publisher->Step();
    f.session.clock.AdvanceNs(3'000'000'000);
    f.publisher->Step();
    CHECK(f.FinishOf(later) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(plain) == SPECD_FINISH_NONE);
  }

  TEST_CASE("a heartbeat names the last message and the open streams") {
    Fixture f;
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
    Fixture f;
    f.session.Open("r");
    std::weak_ptr<Session> alive = f.session.session;
    f.session.session->EndAll();
    f.session.session.reset();
    CHECK(f.publisher->Step());
    const TokenBatch batch = f.Receive();
    REQUIRE(batch.events.size() == 2);
    CHECK(batch.events[1].finish_reason == SPECD_FINISH_ABORT);
    f.publisher->Step();
    CHECK(alive.expired());
    SessionList::Snapshot snapshot;
    uint64_t version = 0;
    f.list.Refresh(&version, &snapshot);
    CHECK(snapshot.empty());
  }

  TEST_CASE("openings with long stop strings do not make a message that nobody may decode") {
    Fixture f;
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
        opens += event.kind == TokenEventKind::kOpen ? 1 : 0;
      }
    }
    CHECK(opens == 200);
  }

  TEST_CASE("more events than one message may carry come in several, in order") {
    Fixture f;
    const SequenceHandle s = f.session.Open("r", 1'000'000);
    for (int i = 0; i < 1500; ++i) f.RunRound(s, Confirm(0, {1}));
    f.publisher->Step();
    uint64_t next = 0;
    for (uint64_t seq = 1; next < 1500; ++seq) {
      const TokenBatch batch = f.Receive();
      CHECK(batch.seq == seq);
      CHECK(batch.events.size() <= 1024);
      for (const TokenEvent& event : batch.events) {
        if (event.kind == TokenEventKind::kTokens) CHECK(event.offset == next++);
      }
    }
  }

  TEST_CASE("a stop string found after the end was published still moves that end") {
    Fixture f;
    const SequenceHandle s = f.session.Open("r", 3);
    f.RunRound(s, Confirm(2, {1, 2, 5}));
    f.publisher->Step();
    const TokenBatch batch = f.Receive();
    REQUIRE(batch.events.size() == 3);
    CHECK(batch.events[2].finish_reason == SPECD_FINISH_LENGTH);
    f.SendAbort({kEpoch, batch.events[0].stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(f.FinishOf(s) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(s)).kept_tokens == 2);
  }

  TEST_CASE("an opening carries what the text side needs, and every event its time") {
    Fixture f;
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
    CHECK(batch.events[0].stop_strings == std::vector<std::string>{"x", "yz"});
    CHECK(batch.events[0].include_stop);
    CHECK(batch.events[0].min_tokens == 3);
    CHECK_FALSE(batch.events[0].skip_special_tokens);
    CHECK(batch.events[0].time_ns == static_cast<uint64_t>(start_ns));
    CHECK_FALSE(batch.events[1].include_stop);
    CHECK(batch.events[1].min_tokens == 0);
    CHECK(batch.events[1].skip_special_tokens);
    CHECK(batch.events[2].time_ns == static_cast<uint64_t>(start_ns) + 500);
  }

  TEST_CASE("a stream with stop strings that opens while nobody looks for them is aborted") {
    Fixture f;
    const SequenceHandle watched = f.OpenWithStop("watched");
    const SequenceHandle plain = f.session.Open("plain");
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(plain) == SPECD_FINISH_NONE);
  }

  TEST_CASE("a message of one or of three frames is no abort") {
    Fixture f;
    const SequenceHandle s = f.session.Open("r");
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
