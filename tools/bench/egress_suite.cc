// The suite `egress`: text from a round's tokens to a reader, and the recovery of a text side.
//
// The text side is the daemon's own (TextWorker) between sockets of this process: the suite is the
// daemon, which publishes token batches and gives them again, and a reader over a Unix socket, as
// readers outside are. The reader asks for what it has missed, and must have every byte.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/heap.h"
#include "daemon/text/publisher.h"
#include "tools/bench/child_process.h"
#include "tools/bench/egress_http.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"

namespace specd::bench {
namespace {

constexpr CaseWords kCases[] = {
    {"lossless", "events a second to a reader that asks for what it has missed"},
    {"http", "texts to 1, 100 and 1,000 clients of specd-http"},
    {"latency", "from a confirmed token to its reader, at a steady rate"},
    {"recovery", "a text side that begins beside 1,000 open streams of 2,000 tokens"}};
constexpr uint64_t kStreams = 256;
constexpr uint64_t kRounds = 400;
constexpr uint64_t kOldStreams = 1000;
constexpr uint64_t kOldTokens = 2000;
constexpr double kRecoveryMs = 1000;  // the design's

absl::Status MeasureRate(Output* out) {
  EgressScene scene;
  SPECD_TRY(scene.Start());
  SPECD_TRY(scene.side.Start());
  EgressReader reader(&scene.side);
  SPECD_TRY(reader.Subscribe(&scene.side, [&] { scene.source.SendHeartbeat(); }));
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  std::thread writer([&] {
    scene.source.OpenAll(kStreams);
    scene.source.WriteAll(kStreams, kRounds);
  });
  const absl::Status status = reader.ReadAll(kStreams, nullptr);
  const double seconds = MicrosSince(start) / 1e6;
  writer.join();
  SPECD_TRY(status);
  const uint64_t expected = kStreams * kRounds * kTokensOfRound * kTokenBytes;
  if (reader.bytes() != expected) {
    return Broken(fmt::format("{} bytes of {} came", reader.bytes(), expected));
  }
  const auto num_events = static_cast<double>(reader.num_events());
  Line line;
  line.Name("case", "lossless", 10)
      .Count("streams", static_cast<int64_t>(kStreams), 8)
      .Count("events", static_cast<int64_t>(reader.num_events()), 8)
      .Cell("events/s", 9, "{:.0f}", num_events / seconds)
      .Cell("tokens/s", 9, "{:.0f}", static_cast<double>(reader.bytes() / kTokenBytes) / seconds)
      .Count("gaps", static_cast<int64_t>(reader.num_missed()), 6)
      .Json("events_per_s", num_events / seconds)
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

absl::Status MeasureRecovery(Output* out) {
  EgressScene scene;
  SPECD_TRY(scene.Start());
  for (uint64_t stream = 1; stream <= kOldStreams; ++stream) {
    std::vector<TokenEvent> events = {OpenEvent(stream)};
    for (uint64_t at = 0; at < kOldTokens; at += kTokensOfRound) {
      events.push_back(TokensEvent(stream, at, kTokensOfRound));
    }
    scene.source.Keep(std::move(events));
  }
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  SPECD_TRY(scene.side.Make());
  while (scene.side.worker->meters().tokens.value() < kOldStreams * kOldTokens) {
    if (SteadyClock::now() - start > kEgressWaitMax) return Broken("the text side never caught up");
    scene.source.SendHeartbeat();
    scene.side.worker->Step(absl::Milliseconds(1));
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
      .Target({.measured = ms, .bound = kRecoveryMs, .unit = "ms"})
      .Json("milliseconds", ms)
      .Load(load);
  out->Print(line);
  return absl::OkStatus();
}

constexpr uint32_t kLiveStreams = 64;
constexpr auto kPause = std::chrono::milliseconds(2);
constexpr double kTargetUs = 200;  // the design's, at p99

// Publisher and text side over the sessions of a verify loop.
struct LiveScene {
  TextSide side;
  std::unique_ptr<LoopScene> loop;
  std::unique_ptr<Publisher> publisher;  // reads the loop's sessions, and goes before them
  std::thread thread;

  ~LiveScene() {
    if (loop != nullptr) loop->Stop();  // the verify thread rings the publisher
    if (thread.joinable()) {
      publisher->Stop();
      thread.join();
    }
    side.Stop();
  }
  absl::Status Start() {
    SPECD_TRY(side.MakeFolder());
    loop = std::make_unique<LoopScene>([this] { publisher->Ring(); });
    Publisher::Options options;
    options.sessions = loop->sessions();
    options.clock = Clock::Real();
    options.context = &side.context;
    options.epoch = kEpoch;
    options.tokens_endpoints = {"inproc://tokens"};
    options.aborts_endpoints = {"inproc://aborts"};
    options.ask_endpoints = {"inproc://ask"};
    SPECD_TAKE(publisher, Publisher::Create(options));
    thread = std::thread([this] { publisher->Run(); });
    return side.Start();
  }
};

// Runs rounds of one token for each stream, to the streams' end.
absl::Status RunRounds(uint64_t num_rounds, LoopScene* loop, std::vector<int64_t>* confirmed_ns) {
  SessionOptions options;
  options.publish_events = true;
  // Small rounds: the way to the reader is measured.
  options.limits = LimitsOf(kLiveStreams, 1, /*vocab_size=*/1024);
  SPECD_TAKE(const auto engine, loop->Attach(options, kBest, /*has_drafts=*/false));
  SequenceParams params = Greedy();
  params.max_tokens = static_cast<int32_t>(num_rounds);
  for (uint32_t i = 0; i < kLiveStreams; ++i) {
    SPECD_TRY(engine->Open(fmt::format("r{}", i), params));
  }
  for (uint64_t round = 0; round < num_rounds; ++round) {
    std::this_thread::sleep_for(kPause);
    SPECD_TAKE(const int64_t done_ns, engine->RunRound());
    confirmed_ns->push_back(done_ns);
  }
  return engine->CloseAll();
}

absl::Status MeasureLatency(double seconds, Output* out) {
  LiveScene scene;
  SPECD_TRY(scene.Start());
  EgressReader reader(&scene.side);
  SPECD_TRY(reader.Subscribe(&scene.side, [] {}));
  const auto num_rounds = static_cast<uint64_t>(
      std::max(10.0, seconds / std::chrono::duration<double>(kPause).count()));
  std::vector<int64_t> confirmed_ns;
  absl::Status ran;
  const LoadMeter meter;
  std::thread engine([&] { ran = RunRounds(num_rounds, scene.loop.get(), &confirmed_ns); });
  // When the token of each round of each stream was delivered. An event may bring several.
  absl::flat_hash_map<uint64_t, uint64_t> rounds;  // of each stream, delivered
  std::vector<std::pair<uint64_t, int64_t>> deliveries;
  const absl::Status status = reader.ReadAll(kLiveStreams, [&](const TextEvent& event) {
    const int64_t at_ns = SteadyClock::now().time_since_epoch().count();
    uint64_t& round = rounds[event.stream];
    while (round < event.tokens) deliveries.emplace_back(round++, at_ns);
  });
  engine.join();
  SPECD_TRY(ran);
  SPECD_TRY(status);
  if (reader.bytes() != kLiveStreams * num_rounds * kTokenBytes ||
      deliveries.size() != kLiveStreams * num_rounds) {
    return Broken(fmt::format("{} tokens of {} bytes came", deliveries.size(), reader.bytes()));
  }
  Times times_us;
  for (const auto& [round, at_ns] : deliveries) {
    times_us.push_back(static_cast<double>(at_ns - confirmed_ns[round]) / 1e3);
  }
  const ForeignLoad load = meter.Read();
  const Summary summary = Summarise(std::move(times_us));
  out->NextTable();
  Line line;
  line.Name("case", "latency", 10)
      .Count("streams", kLiveStreams, 8)
      .Cell("tokens/s", 9, "{:.0f}", kLiveStreams / std::chrono::duration<double>(kPause).count())
      .Spread(summary, "us", 0)
      .Target({.measured = summary.p99, .bound = kTargetUs, .unit = "us"})
      .Load(load);
  out->Print(line);
  return absl::OkStatus();
}

absl::Status RunEgress(const Flags& flags, Output* out) {
  KeepFreedMemory();  // as daemon/detok_main.cc does
  const std::string program = ProgramOf(flags.Text("http"), "specd-http");
  for (const CaseWords* const each : Chosen(flags, kCases)) {
    out->Show(each->name);
    SPECD_TRY(each->name == "lossless"  ? MeasureRate(out)
              : each->name == "http"    ? MeasureHttp(program, out)
              : each->name == "latency" ? MeasureLatency(flags.Real("seconds"), out)
                                        : MeasureRecovery(out));
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
          .flags = {{.name = "http",
                     .help = "specd-http's program; without it the one beside specd-bench"}},
          .run = &RunEgress};
}

}  // namespace specd::bench
