// TextWorkerFixture is a worker between the test's own sockets: the test is the daemon's publisher,
// what it remembers (daemon_memory.h), and a client.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/logging.h"
#include "daemon/text/text_worker.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/daemon_memory.h"
#include "tests/support/manual_clock.h"

namespace specd {

struct TextWorkerFixture {
  static constexpr uint64_t kEpoch = 77;
  static constexpr uint64_t kTokenizer = 9;  // a hash
  static constexpr int64_t kHeartbeatNs = 200'000'000;
  // Until a subscription has arrived. A silent worker fails.
  static constexpr int kTriesMax = 10'000;

  explicit TextWorkerFixture(const KeepLimits& keep = {}, const TextShard& shard = {}) {
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
    options.keep = keep;
    options.shard = shard;
    options.tokenizers = {{"", kTokenizer}};
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

  // The number of the last text, by the heartbeat that came last.
  uint64_t LastSeq() {
    const std::vector<Heartbeat> heartbeats = Heartbeats();
    REQUIRE_FALSE(heartbeats.empty());
    return heartbeats.back().seq;
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

  // Checks the one event: the end of stream 1 with an error.
  void CheckBroken() {
    const std::vector<TextEvent> events = Texts();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == TextEventKind::kEnd);
    CHECK(events[0].stream == 1);
    CHECK(events[0].finish_reason == SPECD_FINISH_ERROR);
    CHECK(events[0].epoch == kEpoch);  // the daemon that the stream belonged to
  }

  static TokenEvent Open(uint64_t stream, std::vector<std::string> stop_strings = {}) {
    return {.stream = stream,
            .what = StreamOpening{.request_id = "r" + std::to_string(stream),
                                  .stop_strings = std::move(stop_strings)}};
  }

  static TokenEvent Tokens(uint64_t stream, uint64_t offset, std::vector<TokenId> ids) {
    return {.stream = stream, .offset = offset, .what = RoundTokens{.ids = std::move(ids)}};
  }

  static TokenEvent End(uint64_t stream, uint64_t offset) {
    return {.stream = stream,
            .offset = offset,
            .what = StreamEnd{.finish_reason = SPECD_FINISH_LENGTH}};
  }

  // One letter per id.
  static Vocabulary MakeVocabulary() {
    Vocabulary::Builder builder;
    for (int i = 0; i < 26; ++i) builder.Set(i, std::string(1, static_cast<char>('a' + i)), {});
    return std::move(builder).Build();
  }
  static ZmqSocket MakeSocket(ZmqContext* context, ZmqKind kind) {
    auto socket = ZmqSocket::Make(context, kind, ZmqOptions{});
    REQUIRE(socket.ok());
    return *std::move(socket);
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

}  // namespace specd
