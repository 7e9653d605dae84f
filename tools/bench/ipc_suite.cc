// The suite `ipc`: what another process adds to the rounds of an engine, while both look for each
// other's words.
//
// The same rounds run embedded and attached, in blocks by turns. Before each round the engine
// computes for a while, as a forward pass would. Engine and daemon have a CPU each; the suite pins
// its thread.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr double kAddedUs = 2;  // the design's, at p50; at p90 it is kMoreAtP90 times as much
constexpr double kMoreAtP90 = 2.5;
// A daemon looks for rounds across the blocks of the embedded engine.
constexpr int32_t kSpinUs = 200'000;
constexpr int kBlockRounds = 16;
constexpr int kBlockWarmUp = 2;
constexpr size_t kLeastBlocks = 13;  // more than 200 rounds

struct Round {
  int32_t vocab_size = 0;
  int32_t draft = 0;
  int32_t gap_us = 0;
};

absl::Status StartEngine(const std::string& uri, const Round& round, CEngine* engine) {
  specd_options options = CEngine::Options(static_cast<uint32_t>(round.vocab_size), 1,
                                           static_cast<uint32_t>(round.draft));
  if (uri.starts_with("embedded:")) options.threads = 1;
  options.spin_us = kSpinUs;
  SPECD_TRY(engine->Start(uri, options, {}));
  return engine->Open("bench", 1, CEngine::Params(0.8));
}

// Adds the times of the rounds but the first two.
absl::Status RunBlock(const Round& round, CEngine* engine, Times* times_us) {
  for (int i = 0; i < kBlockWarmUp + kBlockRounds; ++i) {
    const SteadyClock::time_point end =
        SteadyClock::now() + std::chrono::microseconds(round.gap_us);
    while (SteadyClock::now() < end) {
    }
    SPECD_TAKE(const double time_us, engine->RunRound(static_cast<uint32_t>(round.draft)));
    if (i >= kBlockWarmUp) times_us->push_back(time_us);
  }
  return absl::OkStatus();
}

absl::Status Measure(const Round& round, double seconds, const DaemonProcess& daemon, Output* out) {
  CEngine engines[2];
  SPECD_TRY(StartEngine("embedded:cpu", round, &engines[0]));
  SPECD_TRY(StartEngine(daemon.uri(), round, &engines[1]));
  std::vector<Side> sides;
  for (CEngine& engine : engines) {
    sides.push_back({.turn = [&](Times* times_us) { return RunBlock(round, &engine, times_us); }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({seconds, kLeastBlocks}, &sides));
  const Summary embedded = Summarise(sides[0].times_us);
  const Summary attached = Summarise(sides[1].times_us);
  const double added_p50 = attached.median - embedded.median;
  const double added_p90 = attached.p90 - embedded.p90;
  Line line;
  line.Count("vocab", round.vocab_size, 6)
      .Count("draft", round.draft, 5)
      .Count("gap_us", round.gap_us, 6)
      .Number("embedded p50 us", 15, 1, embedded.median)
      .Number("embedded p90 us", 15, 1, embedded.p90)
      .Number("attached p50 us", 15, 1, attached.median)
      .Number("attached p90 us", 15, 1, attached.p90)
      .Number("attached p99 us", 15, 1, attached.p99)
      .Number("added p50 us", 12, 1, added_p50)
      .Number("added p90 us", 12, 1, added_p90)
      .Target({.measured = std::max(added_p50, added_p90 / kMoreAtP90),
               .bound = kAddedUs,
               .unit = "us"})
      .Count("rounds", attached.num_samples, 6);
  out->Print(line.Load(load));
  return absl::OkStatus();
}

absl::Status RunIpc(const Flags& flags, Output* out) {
  const std::vector<int>& cpus = UsableCpus();
  if (cpus.size() < 2) {
    return absl::ResourceExhaustedError("engine and daemon need a CPU each, and there is one");
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus[0], &own);
  if (sched_setaffinity(0, sizeof(own), &own) != 0) return Broken("its thread cannot be pinned");
  out->Caption("times of a round; the target holds at p50, and 2.5 times as much at p90");
  DaemonProcess daemon({fmt::format("--spin_us={}", kSpinUs)}, cpus[1]);
  SPECD_TRY(daemon.Start().status());
  for (const int32_t vocab_size : flags.Numbers("vocab")) {
    for (const int32_t draft : flags.Numbers("draft")) {
      for (const int32_t gap_us : flags.Numbers("gap")) {
        out->Show(fmt::format("vocabulary {}, {} drafts, {} us between rounds", vocab_size, draft,
                              gap_us));
        SPECD_TRY(Measure({vocab_size, draft, gap_us}, flags.Real("seconds"), daemon, out));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite IpcCommand() {
  return {.name = "ipc",
          .summary = "rounds of an engine that is attached to a daemon beside embedded rounds",
          .flags = {Flag::Seconds("5", "1"),
                    Flag::Wholes("vocab", "vocabulary sizes", {1, kVocabSizeMax}, "2048,32000"),
                    Flag::Wholes("draft", "draft tokens of a sequence", {0, 64}, "0,5"),
                    Flag::Wholes("gap", "us between two rounds of the engine", {0, 100'000},
                                 "0,200,1500")},
          .run = &RunIpc};
}

}  // namespace specd::bench
