// The suite `egress`: text from a round's tokens to a reader, and the recovery of a text side.
//
// The text side is the daemon's own (TextWorker) between sockets of this process: the suite is the
// daemon, which publishes token batches and gives them again, and a reader over a Unix socket, as
// readers outside are. The reader asks for what it has missed, and must have every byte.
#include <fmt/format.h>

#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/heap.h"
#include "tools/bench/egress_cases.h"
#include "tools/bench/egress_reader.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/machine.h"
#include "tools/bench/suite.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

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
  if (!status.ok()) return status;
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
      .Cell("target", 9, "< {:.0f}", kRecoveryMs)
      .Json("milliseconds", ms)
      .Load(load);
  out->Print(line);
  out->TakeAtMost("recovery of 1,000 streams of 2,000 tokens", ms, kRecoveryMs, "ms", load);
  return absl::OkStatus();
}

absl::Status RunEgress(const Flags& flags, Output* out) {
  KeepFreedMemory();  // as daemon/detok_main.cc does
  const Machine machine = ReadMachine();
  out->Begin(machine.processor, Describe(machine, 4));
  for (const CaseWords* const each : Chosen(flags, kCases)) {
    out->Show(std::string(each->name));
    absl::Status status;
    if (each->name == "latency") {
      status = MeasureEgressLatency(flags.Real("seconds"), out);
    } else if (each->name == "http") {
      status = MeasureEgressHttp(flags.Text("http"), out);
    } else if (each->name == "recovery") {
      status = MeasureRecovery(out);
    } else {
      status = MeasureRate(out);
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
          .flags = {{.name = "http",
                     .help = "specd-http's program; without it the one beside specd-bench"}},
          .run = &RunEgress};
}

}  // namespace specd::bench
