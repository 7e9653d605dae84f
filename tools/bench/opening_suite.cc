// The suite `opening`: the rounds of one engine while another opens sequences on the same verify
// thread.
//
// A longer prompt makes an opening take longer. The rounds of other engines must not become longer
// with it.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "daemon/session/open_request.h"
#include "tools/bench/neighbour.h"
#include "tools/bench/slices.h"
#include "tools/bench/suite.h"

namespace specd::bench {
namespace {

struct OpeningCase {
  std::string_view name;
  std::string_view summary;
  size_t num_prompt_ids;  // 0: the neighbour opens nothing
};
constexpr OpeningCase kOpeningCases[] = {
    {"idle", "the neighbour opens nothing", 0},
    {"tiny", "the neighbour opens and closes sequences with a prompt of one id", 1},
    {"million", "the same, with the longest prompt that one opening may bring", kListIdsMax},
};
constexpr size_t kTiny = 1;  // the base of `million`

// Two engines. The neighbour's round is submitted before the engine's: the verify thread therefore
// asks for the neighbour's lock before it comes to the engine's round.
struct OpeningScene {
  LoopScene loop;
  std::unique_ptr<SessionEngine> neighbour;
  std::unique_ptr<SessionEngine> engine;

  absl::Status Start() {
    for (std::unique_ptr<SessionEngine>* const each : {&neighbour, &engine}) {
      SessionOptions options;
      options.limits = LimitsOf(4, 1);
      auto attached = loop.Attach(options, kBest, /*has_drafts=*/false);
      if (!attached.ok()) return attached.status();
      *each = *std::move(attached);
      const char* const name = each == &engine ? "rounds" : "rounds of the neighbour";
      if (absl::Status status = (*each)->Open(name, Greedy()); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Runs a round of both, and adds the time of the engine's.
  absl::Status RunRound(std::vector<double>* times_us) {
    absl::Status status = neighbour->Submit();
    const SteadyClock::time_point start = SteadyClock::now();
    if (status.ok()) status = engine->RunRound();
    times_us->push_back(MicrosSince(start));
    return status.ok() ? neighbour->Finish() : status;
  }
};

absl::Status RunOpeningSlice(double seconds, OpeningScene* scene, Samples* samples) {
  constexpr size_t kWarmRounds = 100;
  const size_t num_ids = kOpeningCases[samples->index].num_prompt_ids;
  std::unique_ptr<Neighbour> openings;
  if (num_ids > 0) {
    openings = std::make_unique<Neighbour>(scene->neighbour.get(),
                                           Neighbour::LongPrompt(num_ids, kSmallVocabSize));
  }
  std::vector<double> warm_us;
  while (warm_us.size() < kWarmRounds || (openings != nullptr && openings->num_begun() == 0)) {
    if (absl::Status status = scene->RunRound(&warm_us); !status.ok()) return status;
  }
  // A slice lasts at least until one opening has ended.
  const int64_t num_before = openings == nullptr ? 0 : openings->num_done();
  const SteadyClock::time_point start = SteadyClock::now();
  do {
    if (absl::Status s = scene->RunRound(&samples->times_us); !s.ok()) return s;
  } while (MicrosSince(start) < 1e6 * seconds ||
           (openings != nullptr && openings->num_done() == num_before));
  if (openings == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::vector<double>> times_us = openings->Stop();
  if (!times_us.ok()) return times_us.status();
  samples->openings_us.insert(samples->openings_us.end(), times_us->begin(), times_us->end());
  return absl::OkStatus();
}

absl::Status RunOpening(const Flags& flags, Output* out) {
  std::vector<Samples> samples;
  for (const OpeningCase* const each : Chosen(flags, kOpeningCases)) {
    const auto index = static_cast<size_t>(each - kOpeningCases);
    samples.push_back({.index = index});
    if (index > kTiny) samples.back().base = kTiny;
  }
  const Machine machine = ReadMachine();
  OpeningScene scene;
  if (absl::Status status = scene.Start(); !status.ok()) return status;
  out->Begin(machine.processor, Describe(machine, machine.usable_cpus));
  out->Caption(
      "rounds of one engine while its neighbour opens sequences; ratio = beside prompts of this "
      "length / beside prompts of one id");
  const LoadMeter meter;
  const double seconds = flags.Real("seconds") / kSlices;
  const absl::Status status =
      TakeTurns(&samples, out, [&](Samples* of) { return RunOpeningSlice(seconds, &scene, of); });
  if (!status.ok()) return status;
  PrintAll(samples, meter.Read(), out, [](const Samples& of, const Summary& times) {
    const bool has_openings = !of.openings_us.empty();
    const Summary openings = has_openings ? Summarise(of.openings_us) : Summary();
    Line line;
    line.Name("case", kOpeningCases[of.index].name, 12)
        .Cell("prompt ids", 10, "{}", kOpeningCases[of.index].num_prompt_ids)
        .Cell("openings", 8, "{}", openings.num_samples)
        .CellIf(has_openings, "opening us", 10, fmt::format("{:.1f}", openings.median))
        .Cell("rounds", 8, "{}", times.num_samples)
        .Cell("median us", 9, "{:.1f}", times.median)
        .Cell("p99 us", 9, "{:.1f}", times.p99)
        .Cell("max us", 10, "{:.1f}", times.max)
        .Json("prompt_ids", kOpeningCases[of.index].num_prompt_ids)
        .Json("openings", openings.num_samples)
        .Json("opening_median", openings.median)
        .Json("unit", "us")
        .Times("", times);
    if (of.base.has_value()) line.Json("ratio_of", kOpeningCases[*of.base].name);
    return line;
  });
  return absl::OkStatus();
}

}  // namespace

Suite OpeningCommand() {
  return {.name = "opening",
          .summary = "rounds of an engine while another opens sequences with long prompts",
          .examples = {"--markdown"},
          .cases = WordsOf(kOpeningCases),
          .seconds = "10",
          .quick_seconds = "2",
          .run = &RunOpening};
}

}  // namespace specd::bench
