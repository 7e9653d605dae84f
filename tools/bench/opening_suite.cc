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
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

struct OpeningCase {
  std::string_view name;
  std::string_view summary;
  size_t num_prompt_ids;           // 0: the neighbour opens nothing
  std::string_view ratio_of = {};  // the case that it is compared with
};
constexpr OpeningCase kCases[] = {
    {"idle", "the neighbour opens nothing", 0},
    {"tiny", "the neighbour opens and closes sequences with a prompt of one id", 1},
    {"million", "the same, with the longest prompt that one opening may bring", kListIdsMax,
     "tiny"},
};
constexpr size_t kSlices = 5;  // of each case

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
      SPECD_TAKE(*each, loop.Attach(options, kBest, /*has_drafts=*/false));
      SPECD_TRY((*each)->Open(each == &engine ? "rounds" : "rounds of the neighbour", Greedy()));
    }
    return absl::OkStatus();
  }

  // Runs a round of both, and adds the time of the engine's.
  absl::Status RunRound(Times* times_us) {
    SPECD_TRY(neighbour->Submit());
    const SteadyClock::time_point start = SteadyClock::now();
    SPECD_TRY(engine->RunRound());
    times_us->push_back(MicrosSince(start));
    return neighbour->Finish();
  }

  absl::Status RunSlice(size_t num_prompt_ids, double seconds, Times* times_us,
                        Times* openings_us) {
    constexpr size_t kWarmRounds = 100;
    std::unique_ptr<Neighbour> openings;
    if (num_prompt_ids > 0) {
      openings = std::make_unique<Neighbour>(
          neighbour.get(), Neighbour::LongPrompt(num_prompt_ids, kSmallVocabSize));
    }
    Times warm_us;
    while (warm_us.size() < kWarmRounds || (openings != nullptr && openings->num_begun() == 0)) {
      SPECD_TRY(RunRound(&warm_us));
    }
    // A slice lasts at least until one opening has ended.
    const int64_t num_before = openings == nullptr ? 0 : openings->num_done();
    const SteadyClock::time_point start = SteadyClock::now();
    do {
      SPECD_TRY(RunRound(times_us));
    } while (MicrosSince(start) < 1e6 * seconds ||
             (openings != nullptr && openings->num_done() == num_before));
    if (openings == nullptr) return absl::OkStatus();
    SPECD_TAKE(const Times opened_us, openings->Stop());
    openings_us->insert(openings_us->end(), opened_us.begin(), opened_us.end());
    return absl::OkStatus();
  }
};

absl::Status RunOpening(const Flags& flags, Output* out) {
  OpeningScene scene;
  SPECD_TRY(scene.Start());
  const Machine machine = ReadMachine();
  out->Begin(machine.processor, Describe(machine, machine.usable_cpus));
  out->Caption(
      "rounds of one engine while its neighbour opens sequences; ratio = beside prompts of this "
      "length / beside prompts of one id");
  const std::vector<const OpeningCase*> cases = Chosen(flags, kCases);
  std::vector<Times> openings_us(cases.size());
  std::vector<Side> sides;
  for (size_t i = 0; i < cases.size(); ++i) {
    sides.push_back({.turn = [&, i](Times* times_us) {
      out->Show(cases[i]->name);
      return scene.RunSlice(cases[i]->num_prompt_ids, flags.Real("seconds") / kSlices, times_us,
                            &openings_us[i]);
    }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({0, kSlices, kSlices}, 0, &sides));
  for (size_t i = 0; i < cases.size(); ++i) {
    const Summary times = Summarise(sides[i].times_us);
    const bool has_openings = !openings_us[i].empty();
    const Summary openings = has_openings ? Summarise(openings_us[i]) : Summary();
    Line line;
    line.Name("case", cases[i]->name, 12)
        .Value("prompt ids", "prompt_ids", 10, "{}", cases[i]->num_prompt_ids)
        .Value("openings", "openings", 8, "{}", openings.num_samples)
        .CellIf(has_openings, "opening us", 10, fmt::format("{:.1f}", openings.median))
        .Cell("rounds", 8, "{}", times.num_samples)
        .Cell("median us", 9, "{:.1f}", times.median)
        .Cell("p99 us", 9, "{:.1f}", times.p99)
        .Cell("max us", 10, "{:.1f}", times.max)
        .Json("opening_median", openings.median)
        .Json("unit", "us")
        .Times("", times);
    const auto base = std::ranges::find(cases, cases[i]->ratio_of, &OpeningCase::name);
    if (!cases[i]->ratio_of.empty()) line.Json("ratio_of", cases[i]->ratio_of);
    const Summary of =
        base == cases.end() ? Summary() : Summarise(sides[base - cases.begin()].times_us);
    out->Print(line.Ratios(times, base == cases.end() ? nullptr : &of).Load(load));
  }
  return absl::OkStatus();
}

}  // namespace

Suite OpeningCommand() {
  return {.name = "opening",
          .summary = "rounds of an engine while another opens sequences with long prompts",
          .examples = {"--markdown"},
          .cases = WordsOf(kCases),
          .seconds = "10",
          .quick_seconds = "2",
          .run = &RunOpening};
}

}  // namespace specd::bench
