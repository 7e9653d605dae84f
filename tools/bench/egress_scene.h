// TextSide is a daemon's text side with the endpoints of its readers, for the suite `egress`.
// EgressScene adds a daemon that publishes whatever a measurement hands it, and EgressReader reads.
//
// The text side is the daemon's own (TextWorker). TokenSource is the daemon: it publishes token
// batches, and a thread gives them again to those who ask. One thread uses the rest.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "daemon/base/logging.h"
#include "daemon/text/kept_streams.h"
#include "daemon/text/text_worker.h"
#include "ipc/include/specd/specd.h"
#include "tools/bench/child_process.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {

inline constexpr uint64_t kEpoch = 7;

inline Vocabulary MakeLetters() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 26; ++id) {
    builder.Set(id, fmt::format(" {}x", static_cast<char>('a' + id)), {});
  }
  return std::move(builder).Build();
}
inline constexpr uint64_t kTokenBytes = 3;
inline constexpr uint64_t kTokensOfRound = 4;

inline TokenEvent OpenEvent(uint64_t stream) {
  // None of the stop strings completes.
  return {.stream = stream,
          .what = StreamOpening{.request_id = fmt::format("r{}", stream),
                                .stop_strings = {"\n\nHuman:", " q ", "ax bx cx dx", "</answer>"}}};
}
inline TokenEvent TokensEvent(uint64_t stream, uint64_t offset, uint64_t count) {
  RoundTokens tokens = {.accepted = static_cast<uint32_t>(count) - 1};
  for (uint64_t i = 0; i < count; ++i) {
    tokens.ids.push_back(static_cast<TokenId>((stream + 5 * (offset + i)) % 26));
  }
  return {.stream = stream, .offset = offset, .what = std::move(tokens)};
}
inline TokenEvent EndEvent(uint64_t stream, uint64_t offset) {
  return {
      .stream = stream, .offset = offset, .what = StreamEnd{.finish_reason = SPECD_FINISH_LENGTH}};
}

// A daemon's side of the sockets.
class TokenSource {
 public:
  explicit TokenSource(ZmqContext* context)
      : asks_(*ReplySocket::Make(context, {})),
        tokens_(*ZmqSocket::Make(context, ZmqKind::kPublish, {.send_queue_messages = 0})),
        aborts_(*ZmqSocket::Make(context, ZmqKind::kPull, {})) {}
  ~TokenSource() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  absl::Status Start() {
    SPECD_TRY(asks_.Bind("inproc://ask"));
    SPECD_TRY(tokens_.Bind("inproc://tokens"));
    SPECD_TRY(aborts_.Bind("inproc://aborts"));
    thread_ = std::thread([this] {
      while (!stop_) {
        const bool any = asks_.Step([this](std::string_view ask, uint32_t) { return Answer(ask); });
        if (!any) std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    return absl::OkStatus();
  }
  void Keep(std::vector<TokenEvent> events) {
    const std::lock_guard lock(mutex_);
    for (TokenEvent& event : events) kept_.Take(&event, 0);
  }
  // The streams 1, 2, .. begin.
  void OpenAll(uint64_t num_streams) {
    SendAll(num_streams, [](uint64_t stream) { return OpenEvent(stream); });
  }
  // Their rounds, and their ends.
  void WriteAll(uint64_t num_streams, uint64_t num_rounds) {
    for (uint64_t round = 0; round < num_rounds; ++round) {
      SendAll(num_streams, [&](uint64_t stream) {
        return TokensEvent(stream, round * kTokensOfRound, kTokensOfRound);
      });
      SendHeartbeat();
    }
    SendAll(num_streams,
            [&](uint64_t stream) { return EndEvent(stream, num_rounds * kTokensOfRound); });
  }
  void SendHeartbeat() {
    std::string payload;
    AppendHeartbeat({.epoch = kEpoch, .seq = seq_, .streams = 1}, &payload);
    Publish(kHeartbeatTopic, payload);
    std::vector<std::string> frames;
    while (aborts_.Receive(&frames, absl::ZeroDuration()).value_or(false)) {
    }
  }

 private:
  void SendAll(uint64_t num_streams, absl::FunctionRef<TokenEvent(uint64_t stream)> make) {
    std::vector<TokenEvent> events;
    for (uint64_t stream = 1; stream <= num_streams; ++stream) events.push_back(make(stream));
    std::string payload;
    {
      const std::lock_guard lock(mutex_);
      for (TokenEvent& event : events) kept_.Take(&event, 0);
      AppendTokenBatch({.epoch = kEpoch, .seq = ++seq_, .events = std::move(events)}, &payload);
    }
    Publish(kTokensTopic, payload);
  }
  void Publish(std::string_view topic, std::string_view payload) {
    const std::string_view frames[] = {topic, payload};
    tokens_.Send(frames).IgnoreError();
  }
  std::string Answer(std::string_view payload) {
    const std::lock_guard lock(mutex_);
    std::string reply;
    const absl::StatusOr<Ask> ask = DecodeAsk(payload);
    absl::StatusOr<TokenAnswer> answer = ask.ok() ? kept_.Answer(*ask) : ask.status();
    if (!answer.ok()) {
      AppendRefusal(answer.status(), &reply);
      return reply;
    }
    answer->epoch = kEpoch;
    answer->seq = seq_;
    answer->profiles = {""};
    answer->tokenizers = {0};
    AppendAnswer(*answer, &reply);
    return reply;
  }

  std::mutex mutex_;  // guards what is kept
  KeptStreams kept_{{.bytes_max = size_t{1} << 30}};
  uint64_t seq_ = 0;
  ReplySocket asks_;
  ZmqSocket tokens_;
  ZmqSocket aborts_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A daemon's text side at inproc://tokens, inproc://aborts and inproc://ask, and the endpoints of
// its readers.
struct TextSide {
  ZmqContext context = *ZmqContext::Make();
  Vocabulary vocabulary = MakeLetters();
  std::unique_ptr<TemporaryFolder> directory;
  std::unique_ptr<TextWorker> worker;
  std::thread thread;

  ~TextSide() { Stop(); }
  const std::string& folder() const { return directory->path(); }
  std::string TextEndpoint() const { return "ipc://" + folder() + "/text"; }
  std::string AskEndpoint() const { return "ipc://" + folder() + "/text_ask"; }

  absl::Status MakeFolder() {
    SPECD_TRY(SetUpLogging({.levels = "off"}));
    SPECD_TAKE(directory, TemporaryFolder::Make());
    return absl::OkStatus();
  }
  // REQUIRES: the daemon's endpoints are bound.
  absl::Status Make() {
    TextWorker::Options options;
    options.vocabularies = {{"", &vocabulary}};
    options.clock = Clock::Real();
    options.context = &context;
    options.tokens_endpoint = "inproc://tokens";
    options.aborts_endpoint = "inproc://aborts";
    options.ask_endpoint = "inproc://ask";
    options.text_endpoint = TextEndpoint();
    options.text_ask_endpoint = AskEndpoint();
    options.keep = {.bytes_max = size_t{1} << 30};
    SPECD_TAKE(worker, TextWorker::Create(options));
    return absl::OkStatus();
  }
  absl::Status Start() {
    SPECD_TRY(Make());
    thread = std::thread([this] { worker->Run(); });
    return absl::OkStatus();
  }
  void Stop() {
    if (!thread.joinable()) return;
    worker->Stop();
    thread.join();
  }
};

// A text side whose daemon is a TokenSource.
struct EgressScene {
  TextSide side;
  TokenSource source{&side.context};

  ~EgressScene() { side.Stop(); }
  absl::Status Start() {
    SPECD_TRY(side.MakeFolder());
    return source.Start();
  }
};

inline constexpr auto kEgressWaitMax = std::chrono::seconds(30);

// EgressReader reads all texts over a Unix socket until every stream has ended, as readers outside
// do, and asks for what it has missed. One thread.
class EgressReader {
 public:
  explicit EgressReader(TextSide* side) : daemon_(&side->context, side->AskEndpoint()) {}

  // `beat` sends the daemon's heartbeat, if none comes by itself.
  absl::Status Subscribe(TextSide* side, const std::function<void()>& beat) {
    SPECD_TAKE(ZmqSocket made, ZmqSocket::Make(&side->context, ZmqKind::kSubscribe, {}));
    socket_ = std::make_unique<ZmqSocket>(std::move(made));
    SPECD_TRY(socket_->Subscribe(""));
    SPECD_TRY(socket_->Connect(side->TextEndpoint()));
    // A socket that hears a heartbeat of this daemon is subscribed, and the text side has begun.
    const SteadyClock::time_point start = SteadyClock::now();
    while (SteadyClock::now() - start < kEgressWaitMax) {
      beat();
      SPECD_TAKE(const bool received, socket_->Receive(&frames_, absl::Milliseconds(20)));
      if (!received || frames_[0] != kHeartbeatTopic) continue;
      const absl::StatusOr<Heartbeat> heard = DecodeHeartbeat(frames_[1]);
      if (heard.ok() && heard->epoch == kEpoch) return absl::OkStatus();
    }
    return Broken("the text side was not heard");
  }

  // Called for each event, and for those of an answer; an event may come behind its answer.
  using Seen = std::function<void(const TextEvent& event)>;

  // Until so many streams have ended.
  absl::Status ReadAll(uint64_t num_streams, const Seen& seen) {
    SteadyClock::time_point last = SteadyClock::now();
    for (uint64_t num_ended = 0; num_ended < num_streams;) {
      SPECD_TAKE(const bool received, socket_->Receive(&frames_, absl::Milliseconds(100)));
      if (!received || frames_[0] == kHeartbeatTopic) {
        if (SteadyClock::now() - last > kEgressWaitMax) return Broken("the texts have no end");
        continue;
      }
      last = SteadyClock::now();
      SPECD_TAKE(const TextEvent event, DecodeTextEvent(frames_[1]));
      if (event.kind != TextEventKind::kOpen && event.byte_offset > have_[event.stream]) {
        ++num_missed_;
        SPECD_TRY(AskFor(event, seen));
      }
      ++num_events_;
      Take(event, seen);
      num_ended += event.kind == TextEventKind::kEnd ? 1 : 0;
    }
    return absl::OkStatus();
  }

  uint64_t num_events() const { return num_events_; }
  uint64_t num_missed() const { return num_missed_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void Take(const TextEvent& event, const Seen& seen) {
    uint64_t& have = have_[event.stream];
    const uint64_t end = event.byte_offset + event.text.size();
    bytes_ += end - std::min(end, std::max(have, event.byte_offset));
    have = std::max(have, end);
    if (seen) seen(event);
  }
  // Asks for the bytes before the event.
  absl::Status AskFor(const TextEvent& event, const Seen& seen) {
    const uint64_t& have = have_[event.stream];
    while (have < event.byte_offset) {
      const uint64_t before = have;
      std::string ask;
      AppendAsk({.kind = AskKind::kFrom, .stream = event.stream, .offset = have}, &ask);
      SPECD_TAKE(const std::string reply, daemon_.Ask(ask, absl::Seconds(10)));
      SPECD_TAKE(const TextAnswer answer, DecodeTextAnswer(reply));
      for (const TextEvent& each : answer.events) Take(each, seen);
      if (have == before) return Broken(fmt::format("an answer has no byte {}", before));
    }
    return absl::OkStatus();
  }

  RequestSocket daemon_;
  std::unique_ptr<ZmqSocket> socket_;
  std::vector<std::string> frames_;
  absl::flat_hash_map<uint64_t, uint64_t> have_;
  uint64_t num_events_ = 0;
  uint64_t num_missed_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace specd::bench
