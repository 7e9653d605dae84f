// The case `latency` of the suite `egress`: from a round's confirmation to a reader.
//
// All threads of a daemon that an event passes are the daemon's own: verify loop, publisher, text
// worker and broadcaster. An engine of this process runs a round of all streams after every pause.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/text/publisher.h"
#include "tools/bench/egress_cases.h"
#include "tools/bench/egress_reader.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/machine.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint32_t kStreams = 64;
constexpr auto kPause = std::chrono::milliseconds(2);
constexpr uint32_t kVocabSize = 1024;  // small rounds: the way to the reader is measured
constexpr double kTargetUs = 200;      // the design's, at p99

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
  options.limits = {.vocab_size = kVocabSize,
                    .max_batch = kStreams,
                    .max_sequences = kStreams,
                    .max_draft = 1,
                    .ring_depth = 1,
                    .max_scores = 1};
  SPECD_TAKE(const auto engine, loop->Attach(options, kBest, /*has_drafts=*/false));
  SequenceParams params = Greedy();
  params.max_tokens = static_cast<int32_t>(num_rounds);
  for (uint32_t i = 0; i < kStreams; ++i) {
    SPECD_TRY(engine->Open(fmt::format("r{}", i), params));
  }
  for (uint64_t round = 0; round < num_rounds; ++round) {
    std::this_thread::sleep_for(kPause);
    SPECD_TAKE(const int64_t done_ns, engine->RunBatch());
    confirmed_ns->push_back(done_ns);
  }
  SPECD_TRY(engine->CloseAll());
  return absl::OkStatus();
}

// When the token of each round of each stream was delivered. An event may bring those of several.
struct Deliveries {
  struct One {
    uint64_t round = 0;
    int64_t at_ns = 0;
  };
  absl::flat_hash_map<uint64_t, uint64_t> rounds;  // of each stream, delivered
  std::vector<One> all;

  void Take(const TextEvent& event) {
    const int64_t at_ns = SteadyClock::now().time_since_epoch().count();
    uint64_t& round = rounds[event.stream];
    while (round < event.tokens) all.push_back({.round = ++round, .at_ns = at_ns});
  }
};

}  // namespace

absl::Status MeasureEgressLatency(double seconds, Output* out) {
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
  Deliveries deliveries;
  const absl::Status status =
      reader.ReadAll(kStreams, [&](const TextEvent& event) { deliveries.Take(event); });
  engine.join();
  for (const absl::Status& each : {ran, status}) {
    if (!each.ok()) return each;
  }
  if (reader.bytes() != kStreams * num_rounds * kTokenBytes) {
    return Broken(fmt::format("{} bytes of text came", reader.bytes()));
  }
  if (deliveries.all.size() != kStreams * num_rounds) {
    return Broken(fmt::format("{} tokens were delivered", deliveries.all.size()));
  }
  std::vector<double> times_us;
  for (const Deliveries::One& each : deliveries.all) {
    times_us.push_back(static_cast<double>(each.at_ns - confirmed_ns[each.round - 1]) / 1e3);
  }
  const ForeignLoad load = meter.Read();
  const Summary summary = Summarise(std::move(times_us));
  out->NextTable();
  Line line;
  line.Name("case", "latency", 10)
      .Count("streams", kStreams, 8)
      .Cell("tokens/s", 9, "{:.0f}", kStreams / std::chrono::duration<double>(kPause).count())
      .Cell("p50 us", 8, "{:.0f}", summary.median)
      .Cell("p90 us", 8, "{:.0f}", summary.p90)
      .Cell("p99 us", 8, "{:.0f}", summary.p99)
      .Cell("max us", 8, "{:.0f}", summary.max)
      .Cell("target", 9, "<= {:.0f}", kTargetUs)
      .Json("unit", "us")
      .Times("", summary)
      .Load(load);
  out->Print(line);
  out->TakeAtMost("confirmed to delivered, p99", summary.p99, kTargetUs, "us", load);
  return absl::OkStatus();
}

}  // namespace specd::bench
