// The suite `egress`: text from a round's tokens to a reader, and the recovery of a text side.
//
// The text side is the daemon's own (TextWorker) between sockets of this process: the suite is the
// daemon, which publishes token batches and gives them again, and a reader over a Unix socket, as
// readers outside are. A lossless reader asks for what it has missed; both readers check each
// stream's bytes.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/machine.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

constexpr CaseWords kCases[] = {
    {"pub", "events a second to a reader that takes what comes"},
    {"lossless", "the same to a reader that asks for what it has missed"},
    {"latency", "from a confirmed token to its reader, at a steady rate"},
    {"recovery", "a text side that begins beside 1,000 open streams of 2,000 tokens"}};
constexpr uint64_t kStreams = 256;
constexpr uint64_t kRounds = 400;
constexpr uint64_t kTokensOfRound = 4;
constexpr uint64_t kOldStreams = 1000;
constexpr uint64_t kOldTokens = 2000;
constexpr double kRecoveryMs = 1000;  // the design's
constexpr uint64_t kSteadyStreams = 64;
constexpr auto kSteadyPause = std::chrono::milliseconds(2);
constexpr auto kWaitMax = std::chrono::seconds(30);

// Reads all texts until every stream has ended.
class Reader {
 public:
  Reader(EgressScene* scene, bool is_lossless)
      : is_lossless_(is_lossless), daemon_(&scene->context, scene->AskEndpoint()) {}

  absl::Status Subscribe(EgressScene* scene) {
    auto made = ZmqSocket::Make(&scene->context, ZmqKind::kSubscribe, {});
    if (!made.ok()) return made.status();
    socket_ = std::make_unique<ZmqSocket>(*std::move(made));
    if (absl::Status s = socket_->Subscribe(""); !s.ok()) return s;
    if (absl::Status s = socket_->Connect(scene->TextEndpoint()); !s.ok()) return s;
    // A socket that hears a heartbeat of this daemon is subscribed, and the text side has begun.
    const SteadyClock::time_point start = SteadyClock::now();
    while (SteadyClock::now() - start < kWaitMax) {
      scene->source.SendHeartbeat();
      auto received = socket_->Receive(&frames_, absl::Milliseconds(20));
      if (!received.ok()) return received.status();
      if (!*received || frames_[0] != kHeartbeatTopic) continue;
      const absl::StatusOr<Heartbeat> beat = DecodeHeartbeat(frames_[1]);
      if (beat.ok() && beat->epoch == kEpoch) return absl::OkStatus();
    }
    return Broken("the text side was not heard");
  }

  // Called for each event that is new.
  using Seen = std::function<void(const TextEvent& event)>;

  // Until so many streams have ended, or nothing comes any more.
  absl::Status ReadAll(uint64_t num_streams, const Seen& seen) {
    SteadyClock::time_point last = SteadyClock::now();
    while (num_ended_ < num_streams) {
      auto received = socket_->Receive(&frames_, absl::Milliseconds(100));
      if (!received.ok()) return received.status();
      if (!*received || frames_[0] == kHeartbeatTopic) {
        const auto quiet = SteadyClock::now() - last;
        if (!is_lossless_ && quiet > std::chrono::seconds(2)) return absl::OkStatus();
        if (quiet > kWaitMax) return Broken("the texts have no end");
        continue;
      }
      last = SteadyClock::now();
      const absl::StatusOr<TextEvent> event = DecodeTextEvent(frames_[1]);
      if (!event.ok()) return event.status();
      if (absl::Status s = Take(*event, seen); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  uint64_t num_events() const { return num_events_; }
  uint64_t num_missed() const { return num_missed_; }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status Take(const TextEvent& event, const Seen& seen) {
    uint64_t& have = have_[event.stream];
    if (event.kind != TextEventKind::kOpen && event.byte_offset > have) {
      ++num_missed_;
      if (is_lossless_) {
        if (absl::Status s = AskFor(event.stream, event.byte_offset, &have); !s.ok()) return s;
      }
    }
    ++num_events_;
    const uint64_t end = event.byte_offset + event.text.size();
    bytes_ += end - std::min(end, std::max(have, event.byte_offset));
    have = std::max(have, end);
    num_ended_ += event.kind == TextEventKind::kEnd ? 1 : 0;
    if (seen) seen(event);
    return absl::OkStatus();
  }
  absl::Status AskFor(uint64_t stream, uint64_t offset, uint64_t* have) {
    while (*have < offset) {
      std::string ask;
      AppendAsk({.kind = AskKind::kFrom, .stream = stream, .offset = *have}, &ask);
      const absl::StatusOr<std::string> reply = daemon_.Ask(ask, absl::Seconds(10));
      if (!reply.ok()) return reply.status();
      const absl::StatusOr<TextAnswer> answer = DecodeTextAnswer(*reply);
      if (!answer.ok()) return answer.status();
      for (const TextEvent& event : answer->events) {
        const uint64_t end = event.byte_offset + event.text.size();
        bytes_ += end - std::min(end, *have);
        *have = std::max(*have, end);
      }
    }
    return absl::OkStatus();
  }

  const bool is_lossless_;
  RequestSocket daemon_;
  std::unique_ptr<ZmqSocket> socket_;
  std::vector<std::string> frames_;
  absl::flat_hash_map<uint64_t, uint64_t> have_;
  uint64_t num_ended_ = 0;
  uint64_t num_events_ = 0;
  uint64_t num_missed_ = 0;
  uint64_t bytes_ = 0;
};

absl::Status MeasureRate(bool is_lossless, Output* out) {
  EgressScene scene;
  if (absl::Status s = scene.Start(); !s.ok()) return s;
  if (absl::Status s = scene.StartWorker(); !s.ok()) return s;
  scene.thread = std::thread([&scene] { scene.worker->Run(); });
  Reader reader(&scene, is_lossless);
  if (absl::Status s = reader.Subscribe(&scene); !s.ok()) return s;
  std::vector<TokenEvent> events;
  for (uint64_t stream = 1; stream <= kStreams; ++stream) events.push_back(OpenEvent(stream));
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  std::thread writer([&] {
    scene.source.Send(std::move(events));
    for (uint64_t round = 0; round < kRounds; ++round) {
      std::vector<TokenEvent> batch;
      for (uint64_t stream = 1; stream <= kStreams; ++stream) {
        batch.push_back(TokensEvent(stream, round * kTokensOfRound, kTokensOfRound));
      }
      scene.source.Send(std::move(batch));
      scene.source.SendHeartbeat();
    }
    std::vector<TokenEvent> ends;
    for (uint64_t stream = 1; stream <= kStreams; ++stream) {
      ends.push_back(EndEvent(stream, kRounds * kTokensOfRound));
    }
    scene.source.Send(std::move(ends));
  });
  const absl::Status status = reader.ReadAll(kStreams, nullptr);
  const double seconds = MicrosSince(start) / 1e6;
  writer.join();
  if (!status.ok()) return status;
  const uint64_t expected = kStreams * kRounds * kTokensOfRound * kTokenBytes;
  if (is_lossless && reader.bytes() != expected) {
    return Broken(fmt::format("{} bytes of {} came", reader.bytes(), expected));
  }
  const auto num_events = static_cast<double>(reader.num_events());
  Line line;
  line.Name("case", is_lossless ? "lossless" : "pub", 10)
      .Count("streams", static_cast<int64_t>(kStreams), 8)
      .Count("events", static_cast<int64_t>(reader.num_events()), 8)
      .Cell("events/s", 9, "{:.0f}", num_events / seconds)
      .Cell("tokens/s", 9, "{:.0f}", static_cast<double>(reader.bytes() / kTokenBytes) / seconds)
      .Count("gaps", static_cast<int64_t>(reader.num_missed()), 6)
      .Cell("text", 8, "{:.1f} %",
            100 * static_cast<double>(reader.bytes()) / static_cast<double>(expected))
      .Json("events_per_s", num_events / seconds)
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

absl::Status MeasureLatency(double seconds, Output* out) {
  EgressScene scene;
  if (absl::Status s = scene.Start(); !s.ok()) return s;
  if (absl::Status s = scene.StartWorker(); !s.ok()) return s;
  scene.thread = std::thread([&scene] { scene.worker->Run(); });
  Reader reader(&scene, true);
  if (absl::Status s = reader.Subscribe(&scene); !s.ok()) return s;
  const auto num_rounds = static_cast<uint64_t>(
      std::max(10.0, seconds / std::chrono::duration<double>(kSteadyPause).count()));
  std::vector<std::atomic<int64_t>> sent_ns(num_rounds + 1);
  const auto now_ns = [] { return SteadyClock::now().time_since_epoch().count(); };
  const LoadMeter meter;
  std::thread writer([&] {
    std::vector<TokenEvent> events;
    for (uint64_t stream = 1; stream <= kSteadyStreams; ++stream) {
      events.push_back(OpenEvent(stream));
      events.back().stop_strings.clear();  // held text would count as late
    }
    scene.source.Send(std::move(events));
    for (uint64_t round = 0; round < num_rounds; ++round) {
      std::this_thread::sleep_for(kSteadyPause);
      std::vector<TokenEvent> batch;
      for (uint64_t stream = 1; stream <= kSteadyStreams; ++stream) {
        batch.push_back(TokensEvent(stream, round, 1));
      }
      sent_ns[round + 1] = now_ns();
      scene.source.Send(std::move(batch));
      if (round % 64 == 0) scene.source.SendHeartbeat();
    }
    std::vector<TokenEvent> ends;
    for (uint64_t stream = 1; stream <= kSteadyStreams; ++stream) {
      ends.push_back(EndEvent(stream, num_rounds));
    }
    scene.source.Send(std::move(ends));
  });
  std::vector<double> times_us;
  const absl::Status status = reader.ReadAll(kSteadyStreams, [&](const TextEvent& event) {
    if (event.kind != TextEventKind::kText) return;
    times_us.push_back(static_cast<double>(now_ns() - sent_ns[event.tokens]) / 1e3);
  });
  writer.join();
  if (!status.ok()) return status;
  if (times_us.empty()) return Broken("no text came");
  const Summary summary = Summarise(std::move(times_us));
  out->NextTable();
  Line line;
  line.Name("case", "latency", 10)
      .Count("streams", static_cast<int64_t>(kSteadyStreams), 8)
      .Cell(
          "tokens/s", 9, "{:.0f}",
          static_cast<double>(kSteadyStreams) / std::chrono::duration<double>(kSteadyPause).count())
      .Cell("p50 us", 8, "{:.0f}", summary.median)
      .Cell("p99 us", 8, "{:.0f}", summary.p99)
      .Cell("max us", 8, "{:.0f}", summary.max)
      .Json("unit", "us")
      .Times("", summary)
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

absl::Status MeasureRecovery(Output* out) {
  EgressScene scene;
  if (absl::Status s = scene.Start(); !s.ok()) return s;
  for (uint64_t stream = 1; stream <= kOldStreams; ++stream) {
    std::vector<TokenEvent> events = {OpenEvent(stream)};
    for (uint64_t at = 0; at < kOldTokens; at += kTokensOfRound) {
      events.push_back(TokensEvent(stream, at, kTokensOfRound));
    }
    scene.source.Keep(std::move(events));
  }
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  if (absl::Status s = scene.StartWorker(); !s.ok()) return s;
  while (scene.worker->meters().tokens.value() < kOldStreams * kOldTokens) {
    if (SteadyClock::now() - start > kWaitMax) return Broken("the text side never caught up");
    scene.source.SendHeartbeat();
    scene.worker->Step(absl::Milliseconds(1));
  }
  const double ms = MicrosSince(start) / 1e3;
  const ForeignLoad load = meter.Read();
  out->NextTable();
  Line line;
  line.Name("case", "recovery", 10)
      .Count("streams", static_cast<int64_t>(kOldStreams), 8)
      .Count("tokens", static_cast<int64_t>(kOldStreams * kOldTokens), 9)
      .Cell("ms", 8, "{:.0f}", ms)
      .Cell("ns/token", 9, "{:.0f}", 1e6 * ms / static_cast<double>(kOldStreams * kOldTokens))
      .Cell("target", 9, "< {:.0f}", kRecoveryMs)
      .Json("milliseconds", ms)
      .Load(load);
  out->Print(line);
  out->Take({.name = "recovery of 1,000 streams of 2,000 tokens",
             .dtype = "",
             .measured = fmt::format("{:.0f} ms", ms),
             .target = fmt::format("{:.0f} ms", kRecoveryMs),
             .is_met = ms < kRecoveryMs,
             .is_disturbed = IsDisturbed(load),
             .missing = ms / kRecoveryMs - 1});
  return absl::OkStatus();
}

absl::Status RunEgress(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  out->Begin(machine.processor, Describe(machine, 4));
  for (const CaseWords* const each : Chosen(flags, kCases)) {
    out->Show(std::string(each->name));
    absl::Status status;
    if (each->name == "latency") {
      status = MeasureLatency(flags.Real("seconds"), out);
    } else if (each->name == "recovery") {
      status = MeasureRecovery(out);
    } else {
      status = MeasureRate(each->name == "lossless", out);
    }
    if (!status.ok()) return status;
  }
  out->Note("recovery is the text side's own time, without the load of its tokenizer (detok load)");
  return absl::OkStatus();
}

}  // namespace

Suite EgressCommand() {
  return {.name = "egress",
          .summary = "text events to readers, their latency, and the recovery of a text side",
          .examples = {"--quick --markdown"},
          .cases = WordsOf(kCases),
          .seconds = "5",
          .quick_seconds = "1",
          .run = &RunEgress};
}

}  // namespace specd::bench
