#include "daemon/publisher.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/logging.h"
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
    REQUIRE(SetUpLogging("off").ok());
    REQUIRE(tokens.Subscribe(kTokensTopic).ok());
    REQUIRE(tokens.Connect("inproc://tokens").ok());
    REQUIRE(aborts.Connect("inproc://aborts").ok());
    // A subscription travels to the publisher when it next looks at its sockets.
    publisher->Step();
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

  // The next batch of events; the publisher has been stepped before.
  TokenBatch Receive() {
    std::vector<std::string> frames;
    auto received = tokens.Receive(&frames, absl::Seconds(30));
    REQUIRE(received.ok());
    REQUIRE(*received);
    REQUIRE(frames.size() == 2);
    CHECK(frames[0] == kTokensTopic);
    auto batch = DecodeTokenBatch(frames[1]);
    REQUIRE(batch.ok());
    return *batch;
  }

  void SendAbort(const AbortRequest& request) {
    std::string payload;
    AppendAbortRequest(request, &payload);
    Send(payload);
  }

  void Send(std::string_view payload) {
    const std::array<std::string_view, 1> frames = {payload};
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
    f.Send("noise");
    f.publisher->Step();
    CHECK(f.FinishOf(a) == SPECD_FINISH_NONE);
    f.SendAbort({kEpoch, stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(f.FinishOf(a) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(a)).kept_tokens == 2);
    CHECK(f.FinishOf(b) == SPECD_FINISH_NONE);
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

  TEST_CASE("the text side counts as alive for a second after its last message") {
    Fixture f;
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.Send("");
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());
    f.session.clock.AdvanceNs(999'999'999);
    CHECK(f.publisher->TextSideAlive());
    f.session.clock.AdvanceNs(1);
    CHECK_FALSE(f.publisher->TextSideAlive());
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
}

}  // namespace
}  // namespace specd
