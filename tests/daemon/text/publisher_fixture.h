// PublisherFixture is a publisher over one session, with both ends of its sockets in the test's
// hand.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/logging.h"
#include "daemon/text/publisher.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {

inline constexpr uint64_t kEpoch = 77;

inline ZmqSocket MakeSocket(ZmqContext* context, ZmqKind kind) {
  auto socket = ZmqSocket::Make(context, kind, ZmqOptions{});
  REQUIRE(socket.ok());
  return *std::move(socket);
}

struct PublisherFixture {
  static constexpr int64_t kGraceNs = 30'000'000'000;

  explicit PublisherFixture(const KeepLimits& keep = {})
      : context(*ZmqContext::Make()),
        publisher(MakePublisher(keep)),
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

  std::unique_ptr<Publisher> MakePublisher(const KeepLimits& keep) {
    Publisher::Options options;
    options.sessions = &list;
    options.clock = &session.clock;
    options.context = &context;
    options.epoch = kEpoch;
    options.tokens_endpoints = {"inproc://tokens"};
    options.aborts_endpoints = {"inproc://aborts"};
    options.ask_endpoints = {"inproc://ask"};
    options.watch_text_side = true;
    options.text_grace_ns = kGraceNs;
    options.keep = keep;
    auto made = Publisher::Create(options);
    REQUIRE(made.ok());
    return *std::move(made);
  }

  void RunRound(SequenceHandle sequence, ScriptedOutcome outcome) {
    session.backend->script = {std::move(outcome)};
    REQUIRE(session.Submit({sequence}) == PushResult::kOk);
    REQUIRE(StepSession(session.session));
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

  SequenceHandle OpenWithStop(const std::string& name, uint32_t max_tokens = 1000,
                              StopSearch stops = StopSearch::kAuto) {
    SequenceParams params;
    params.max_tokens = max_tokens;
    params.stop_strings = {"x"};
    params.stops = stops;
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

  // Time passes while the publisher looks, every 100 ms at least.
  void PassTime(int64_t ns) {
    for (int64_t left_ns = ns; left_ns > 0; left_ns -= 100'000'000) {
      session.clock.AdvanceNs(std::min<int64_t>(left_ns, 100'000'000));
      publisher->Step();
    }
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

}  // namespace specd
