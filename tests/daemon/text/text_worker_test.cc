#include "daemon/text/text_worker.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/logging.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/daemon_memory.h"
#include "tests/support/manual_clock.h"

namespace specd {
namespace {

constexpr uint64_t kEpoch = 77;
constexpr int64_t kHeartbeatNs = 200'000'000;
constexpr int kTriesMax = 10'000;  // until a subscription has arrived; a silent worker fails

// One letter per id.
Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  for (int i = 0; i < 26; ++i) builder.Set(i, std::string(1, static_cast<char>('a' + i)), {});
  return std::move(builder).Build();
}

ZmqSocket MakeSocket(ZmqContext* context, ZmqKind kind) {
  auto socket = ZmqSocket::Make(context, kind, ZmqOptions{});
  REQUIRE(socket.ok());
  return *std::move(socket);
}

// A worker between the test's own sockets: the test is the daemon's publisher and a client.
struct Fixture {
  Fixture() {
    REQUIRE(SetUpLogging({.levels = "off"}).ok());
    REQUIRE(tokens.Bind("inproc://tokens").ok());
    REQUIRE(aborts.Bind("inproc://aborts").ok());
    TextWorker::Options options;
    options.vocabularies = {{"", &vocabulary}};
    options.clock = &clock;
    options.context = &context;
    options.tokens_endpoint = "inproc://tokens";
    options.aborts_endpoint = "inproc://aborts";
    options.ask_endpoint = "inproc://ask";
    options.text_endpoint = "inproc://text";
    options.text_ask_endpoint = "inproc://text_ask";
    auto made = TextWorker::Create(options);
    REQUIRE(made.ok());
    worker = *std::move(made);
    REQUIRE(texts.Subscribe("").ok());
    REQUIRE(texts.Connect("inproc://text").ok());
    // A socket that hears a heartbeat is subscribed.
    bool heard = false;
    for (int i = 0; i < kTriesMax && !heard; ++i) {
      Tick();
      heard = NextFrames(absl::Milliseconds(1)).has_value();
    }
    REQUIRE(heard);
    while (NextFrames(absl::ZeroDuration()).has_value()) {
    }
  }

  // Advances time to the worker's next heartbeat, and nothing else.
  void Tick() {
    clock.AdvanceNs(kHeartbeatNs);
    worker->Step(absl::ZeroDuration());
  }

  void Send(std::string_view topic, const std::string& payload) {
    const std::array<std::string_view, 2> frames = {topic, payload};
    REQUIRE(tokens.Send(frames).ok());
  }

  void SendHeartbeat(uint64_t epoch, uint64_t seq) {
    std::string payload;
    AppendHeartbeat({epoch, seq, 0}, &payload);
    Send(kHeartbeatTopic, payload);
  }

  // The worker hears the daemon for the first time, after message `seq`.
  void Attach(uint64_t seq = 0) {
    bool heard = false;
    memory.Keep(kEpoch, seq, {});
    for (int i = 0; i < kTriesMax && !heard; ++i) {
      SendHeartbeat(kEpoch, seq);
      heard = worker->Step(absl::Milliseconds(1));
    }
    REQUIRE(heard);
    while (worker->Step(absl::ZeroDuration())) {
    }
  }

  void HearHeartbeat(uint64_t epoch, uint64_t seq) {
    memory.Keep(epoch, seq, {});
    SendHeartbeat(epoch, seq);
    REQUIRE(worker->Step(absl::Seconds(30)));
  }

  void HearBatch(uint64_t seq, std::vector<TokenEvent> events, uint64_t epoch = kEpoch) {
    memory.Keep(epoch, seq, events);
    std::string payload;
    AppendTokenBatch({epoch, seq, std::move(events)}, &payload);
    Send(kTokensTopic, payload);
    REQUIRE(worker->Step(absl::Seconds(30)));
  }

  std::optional<std::vector<std::string>> NextFrames(absl::Duration timeout) {
    std::vector<std::string> frames;
    auto received = texts.Receive(&frames, timeout);
    REQUIRE(received.ok());
    if (!*received) return std::nullopt;
    REQUIRE(frames.size() == 2);
    return frames;
  }

  // The messages that the worker published since the last call; they are here when Step returns.
  std::vector<TextEvent> Texts() {
    std::vector<TextEvent> events;
    while (auto frames = NextFrames(absl::ZeroDuration())) {
      if ((*frames)[0] == kHeartbeatTopic) continue;
      auto event = DecodeTextEvent((*frames)[1]);
      REQUIRE(event.ok());
      CHECK((*frames)[0] == TextTopic(event->request_id));
      events.push_back(*event);
    }
    return events;
  }

  std::vector<Heartbeat> Heartbeats() {
    std::vector<Heartbeat> heartbeats;
    while (auto frames = NextFrames(absl::ZeroDuration())) {
      if ((*frames)[0] != kHeartbeatTopic) continue;
      auto heartbeat = DecodeHeartbeat((*frames)[1]);
      REQUIRE(heartbeat.ok());
      heartbeats.push_back(*heartbeat);
    }
    return heartbeats;
  }

  // The payloads on the aborts endpoint under one topic; those of the other are dropped.
  std::vector<std::string> ToDaemon(std::string_view topic) {
    std::vector<std::string> payloads;
    std::vector<std::string> frames;
    while (true) {
      auto received = aborts.Receive(&frames, absl::ZeroDuration());
      REQUIRE(received.ok());
      if (!*received) return payloads;
      REQUIRE(frames.size() == 2);
      if (frames[0] == topic) payloads.push_back(frames[1]);
    }
  }

  std::vector<AbortRequest> Aborts() {
    std::vector<AbortRequest> requests;
    for (const std::string& payload : ToDaemon(kAbortTopic)) {
      auto request = DecodeAbortRequest(payload);
      REQUIRE(request.ok());
      requests.push_back(*request);
    }
    return requests;
  }

  std::vector<SignOfLife> SignsOfLife() {
    std::vector<SignOfLife> signs;
    for (const std::string& payload : ToDaemon(kAliveTopic)) {
      auto alive = DecodeSignOfLife(payload);
      REQUIRE(alive.ok());
      signs.push_back(*alive);
    }
    return signs;
  }

  const Vocabulary vocabulary = MakeVocabulary();
  ManualClock clock;
  ZmqContext context = *ZmqContext::Make();
  DaemonMemory memory{&context};
  ZmqSocket tokens = MakeSocket(&context, ZmqKind::kPublish);
  ZmqSocket aborts = MakeSocket(&context, ZmqKind::kPull);
  ZmqSocket texts = MakeSocket(&context, ZmqKind::kSubscribe);
  std::unique_ptr<TextWorker> worker;
};

TokenEvent Open(uint64_t stream) {
  TokenEvent event;
  event.kind = TokenEventKind::kOpen;
  event.stream = stream;
  event.request_id = "r" + std::to_string(stream);
  return event;
}

TokenEvent Tokens(uint64_t stream, uint64_t offset, std::vector<TokenId> ids) {
  TokenEvent event;
  event.stream = stream;
  event.offset = offset;
  event.ids = std::move(ids);
  return event;
}

TokenEvent End(uint64_t stream, uint64_t offset) {
  TokenEvent event;
  event.kind = TokenEventKind::kEnd;
  event.stream = stream;
  event.offset = offset;
  event.finish_reason = SPECD_FINISH_LENGTH;
  return event;
}

// Checks the one event: the end of stream 1 with an error.
void CheckBroken(const std::vector<TextEvent>& texts) {
  REQUIRE(texts.size() == 1);
  CHECK(texts[0].kind == TextEventKind::kEnd);
  CHECK(texts[0].stream == 1);
  CHECK(texts[0].finish_reason == SPECD_FINISH_ERROR);
  CHECK(texts[0].epoch == kEpoch);  // the daemon that the stream belonged to
}

TEST_SUITE("unit") {
  TEST_CASE("texts are numbered one by one and carry the daemon's epoch") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1), Tokens(1, 0, {0}), Open(2)});
    f.HearBatch(2, {Tokens(2, 0, {1}), Tokens(1, 1, {2})});
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 5);
    for (size_t i = 0; i < texts.size(); ++i) {
      CHECK(texts[i].seq == i + 1);
      CHECK(texts[i].epoch == kEpoch);
    }
    CHECK(texts[3].text == "b");
    CHECK(texts[4].text == "c");
    CHECK(f.Aborts().empty());
  }

  TEST_CASE("a heartbeat every 200 ms names the last text and the streams that live") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1), Open(2), Tokens(1, 0, {0})});
    f.Texts();
    f.Tick();
    f.clock.AdvanceNs(kHeartbeatNs - 1);
    f.worker->Step(absl::ZeroDuration());
    const std::vector<Heartbeat> heartbeats = f.Heartbeats();
    REQUIRE(heartbeats.size() == 1);
    CHECK(heartbeats[0].epoch == kEpoch);
    CHECK(heartbeats[0].seq == 3);
    CHECK(heartbeats[0].streams == 2);
  }

  TEST_CASE("a lost batch is asked for, and its streams go on") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1), Tokens(1, 0, {0, 1})});
    f.Texts();
    f.memory.Keep(kEpoch, 2, {Tokens(1, 2, {2}), Open(3), Tokens(3, 0, {4}), Open(4), End(4, 0)});
    f.HearBatch(3, {Tokens(1, 3, {3}), Open(2)});
    const std::vector<TextEvent> texts = f.Texts();
    std::string text;
    for (const TextEvent& event : texts) {
      if (event.stream == 1) text += event.text;
      CHECK(event.kind != TextEventKind::kEnd);
      CHECK(event.stream != 4);  // who wants a stream that is over asks for it
    }
    CHECK(text == "cd");
    CHECK(f.Aborts().empty());
    CHECK(f.worker->counters().broken_streams == 0);
    // What was heard again is not given out again.
    f.HearBatch(4, {Tokens(2, 0, {0}), Tokens(3, 1, {5})});
    CHECK(f.Texts().size() == 2);
    CHECK(f.worker->counters().unknown_events == 0);
  }

  TEST_CASE("the end of a stream that was lost is asked for") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1), Tokens(1, 0, {0})});
    f.Texts();
    f.memory.Keep(kEpoch, 2, {Tokens(1, 1, {1}), End(1, 2)});
    f.HearHeartbeat(kEpoch, 2);
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 2);
    CHECK(texts[0].text == "b");
    CHECK(texts[1].kind == TextEventKind::kEnd);
    CHECK(texts[1].finish_reason == SPECD_FINISH_LENGTH);
    // FNV-1a of "ab", as published with the algorithm.
    CHECK(texts[1].checksum == 0x089c4407b545986aU);
  }

  TEST_CASE("a worker that starts late, or takes another one's place, has every text") {
    Fixture f;
    f.memory.Keep(kEpoch, 3,
                  {Open(1), Tokens(1, 0, {0, 1}), Open(2), Tokens(2, 0, {2}), End(2, 1)});
    f.Attach(3);
    f.HearBatch(4, {Tokens(1, 2, {3})});
    std::string text;
    for (const TextEvent& event : f.Texts()) {
      CHECK(event.stream == 1);
      text += event.text;
    }
    CHECK(text == "abd");
  }

  TEST_CASE("a stream that is over before the worker has asked for it is published once") {
    Fixture f;
    const std::vector<TokenEvent> whole = {Open(1), Tokens(1, 0, {0, 1}), End(1, 2)};
    f.Attach();
    f.HearHeartbeat(kEpoch + 1, 0);  // the worker asks again
    f.memory.Mute(true);
    f.memory.Keep(kEpoch + 1, 1, {Open(2)});
    f.HearHeartbeat(kEpoch + 1, 1);
    f.memory.Mute(false);
    f.HearBatch(2, whole, kEpoch + 1);
    f.HearBatch(3, {Tokens(2, 0, {2})}, kEpoch + 1);
    std::string text;
    for (const TextEvent& event : f.Texts()) text += event.text;
    CHECK(text == "abc");
  }

  TEST_CASE("while the daemon does not answer nothing ends, and nobody is told that all is well") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1), Tokens(1, 0, {0})});
    f.Texts();
    f.SignsOfLife();
    f.memory.Mute(true);
    f.memory.Keep(kEpoch, 2, {Tokens(1, 1, {1})});
    f.HearHeartbeat(kEpoch, 2);
    f.HearBatch(3, {Tokens(1, 2, {2})});
    f.Tick();
    CHECK(f.Texts().empty());
    CHECK(f.Aborts().empty());
    CHECK(f.SignsOfLife().empty());
    f.memory.Mute(false);
    f.HearHeartbeat(kEpoch, 3);
    std::string text;
    for (const TextEvent& event : f.Texts()) text += event.text;
    CHECK(text == "bc");
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
  }

  TEST_CASE("a stream that the daemon has not kept ends by an error") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1)});
    f.Texts();
    f.memory.Keep(kEpoch + 1, 2, {});  // it forgets all
    f.memory.Keep(kEpoch, 2, {});
    f.HearHeartbeat(kEpoch, 2);
    CheckBroken(f.Texts());
    const std::vector<AbortRequest> aborts = f.Aborts();
    REQUIRE(aborts.size() == 1);
    CHECK(aborts[0].epoch == kEpoch);
    CHECK(aborts[0].stream == 1);
    CHECK(aborts[0].finish_reason == SPECD_FINISH_ABORT);
  }

  TEST_CASE("another daemon ends the streams of the one before and is asked for no aborts") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {Open(1)});
    f.Texts();
    f.HearHeartbeat(kEpoch + 1, 5);
    CheckBroken(f.Texts());
    CHECK(f.Aborts().empty());
    // The new daemon's numbers count from the first one that was heard.
    f.HearBatch(6, {Open(1)}, kEpoch + 1);
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 1);
    CHECK(texts[0].epoch == kEpoch + 1);
    f.HearBatch(7, {Tokens(1, 4, {0})}, kEpoch + 1);
    const std::vector<AbortRequest> aborts = f.Aborts();
    REQUIRE(aborts.size() == 1);
    CHECK(aborts[0].epoch == kEpoch + 1);
  }

  TEST_CASE("only who has heard the daemon within a second says that it is alive") {
    Fixture f;
    f.Tick();
    CHECK(f.SignsOfLife().empty());
    f.Attach();
    for (int i = 1; i <= 4; ++i) f.Tick();
    const std::vector<SignOfLife> signs = f.SignsOfLife();
    REQUIRE(signs.size() == 4);
    for (const SignOfLife& alive : signs) {
      CHECK(alive.epoch == kEpoch);
      CHECK(alive.instance == signs[0].instance);
    }
    f.Tick();  // a second after the last word
    CHECK(f.SignsOfLife().empty());
    // A pause of the worker is no silence of the daemon.
    f.HearHeartbeat(kEpoch, 0);
    f.clock.AdvanceNs(3'600'000'000'000);
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
    f.Tick();
    f.Tick();
    f.Tick();
    f.Tick();
    CHECK(f.SignsOfLife().size() == 3);
    f.HearHeartbeat(kEpoch, 0);
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
    f.HearHeartbeat(kEpoch, 1);  // a message was lost: the daemon must hear of a new instance
    f.Tick();
    const std::vector<SignOfLife> after_loss = f.SignsOfLife();
    REQUIRE(after_loss.size() == 1);
    CHECK(after_loss[0].instance != signs[0].instance);

    Fixture other;
    other.Attach();
    other.Tick();
    const std::vector<SignOfLife> of_other = other.SignsOfLife();
    REQUIRE(of_other.size() == 1);
    CHECK(of_other[0].instance != signs[0].instance);
  }
}

}  // namespace
}  // namespace specd
