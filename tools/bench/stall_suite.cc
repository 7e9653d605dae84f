// The suite `stall`: the rounds of ten small engines, alone and beside a neighbour that takes what
// it can get. All are attached to one daemon.
//
// Each slice starts a daemon of its own, and kills it in the end. A round of a minute ends with its
// daemon.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/cpus.h"
#include "kernels/core/types.h"
#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr size_t kSmallEngines = 10;
constexpr uint32_t kSmallDraft = 4;
constexpr int32_t kSmallVocabSize = 32000;
constexpr uint32_t kMostDraft = 64;
constexpr uint32_t kMonsterBatch = 640;
constexpr size_t kSlices = 5;  // of each case

constexpr CaseWords kCases[] = {
    {"alone", "rounds of ten small engines"},
    {"monster",
     "the same beside an engine whose round has 640 sequences of 65 rows with 2^20 elements"},
    {"masks", "the same beside an engine that needs 65 new masks in each round"},
};

// 1024 places, each with another set of letters that has "a", and most with a space.
std::string ManyPlaces(uint64_t number) {
  std::mt19937_64 random(number);
  std::string pattern;
  for (int place = 0; place < 1024; ++place) {
    pattern += "[a";
    for (int i = 0; i < 30; ++i) pattern += "bcdefghijklmnopqrstuvwxyz "[random() % 26];
    pattern += "]";
  }
  return pattern;
}

// Rounds of a sequence that needs a mask of its own at each place of a long draft, whose constraint
// is new each time. One round at least.
absl::Status RunMasks(CEngine& engine, const std::atomic<bool>& stop) {
  static std::atomic<uint64_t> next{1};
  do {
    const std::string pattern = ManyPlaces(next++);
    specd_params params = CEngine::Params(0);
    params.grammar_kind = SPECD_GRAMMAR_REGEX;
    params.grammar = pattern.c_str();
    SPECD_TRY(engine.Open("masks", 1, params));
    // Less than all its places, so that all drafts are accepted.
    for (int round = 0; round < 15 && !stop; ++round) {
      SPECD_TRY(engine.RunRound(kMostDraft).status());
    }
    SPECD_TRY(engine.CloseAll());
  } while (!stop);
  return absl::OkStatus();
}

// One round at least, however late the thread begins.
absl::StatusOr<Times> RunUntil(SteadyClock::time_point end, CEngine& engine) {
  Times times_us;
  do {
    SPECD_TAKE(times_us.emplace_back(), engine.RunRound(kSmallDraft));
  } while (SteadyClock::now() < end);
  return times_us;
}

// A monster begins its round. The constraints of masks are over this vocabulary.
absl::Status StartNeighbour(std::string_view name, const std::string& uri,
                            const SyntheticVocabulary& vocabulary, CEngine* neighbour) {
  if (name == "masks") {
    const auto a = static_cast<uint32_t>(vocabulary.Tokenize("a").front());
    return neighbour->Start(uri, CEngine::Options(kSmallVocabSize, 1, kMostDraft),
                            {.num_rows = 1, .first_best = a});
  }
  if (name != "monster") return absl::OkStatus();
  // Legal, and takes a minute or more.
  SPECD_TRY(neighbour->Start(uri, CEngine::Options(kVocabSizeMax, kMonsterBatch, kMostDraft),
                             {.num_rows = 1}));
  specd_params params = CEngine::Params(1);
  params.top_p = 0.95;
  SPECD_TRY(neighbour->Open("monster", kMonsterBatch, params));
  return neighbour->Submit(kMostDraft);
}

absl::Status RunSlice(std::string_view name, int32_t threads, double seconds, Times* all_us) {
  const SyntheticVocabulary vocabulary(kSmallVocabSize);
  SPECD_TAKE(const auto folder, TemporaryFolder::Make());
  SPECD_TAKE(const std::string tokenizer,
             folder->Write("tokenizer.json", TokenizerJson(vocabulary.vocabulary())));
  DaemonProcess daemon({fmt::format("--threads={}", threads), "--tokenizer=" + tokenizer,
                        fmt::format("--eos_token_ids={}", vocabulary.eos_id())});
  SPECD_TRY(daemon.Start().status());
  std::vector<CEngine> small(kSmallEngines);
  for (CEngine& engine : small) {
    SPECD_TRY(engine.Start(daemon.uri(), CEngine::Options(kSmallVocabSize, 1, kSmallDraft), {}));
    SPECD_TRY(engine.Open(fmt::format("small {}", &engine - small.data()), 1, CEngine::Params(0)));
  }
  CEngine neighbour;
  SPECD_TRY(StartNeighbour(name, daemon.uri(), vocabulary, &neighbour));
  std::atomic<bool> stop{false};
  std::future<absl::Status> masks;
  if (name == "masks") {
    masks = std::async(std::launch::async, [&] { return RunMasks(neighbour, stop); });
  }
  const SteadyClock::time_point end =
      SteadyClock::now() + std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
  std::vector<std::future<absl::StatusOr<Times>>> works;
  for (CEngine& engine : small) {
    works.push_back(std::async(std::launch::async, [&] { return RunUntil(end, engine); }));
  }
  absl::Status status;
  for (auto& work : works) {
    const absl::StatusOr<Times> times_us = work.get();
    if (!times_us.ok()) status = times_us.status();
    if (times_us.ok()) all_us->insert(all_us->end(), times_us->begin(), times_us->end());
  }
  stop = true;
  if (masks.valid()) status.Update(masks.get());
  if (name == "monster") {
    const absl::StatusOr<bool> ended = neighbour.Poll();
    if (!ended.ok() || *ended) status.Update(Broken("the monster's round ended too early"));
  }
  daemon.Kill();
  return status;
}

absl::Status RunStall(const Flags& flags, Output* out) {
  const int32_t threads = ResolveThreads(static_cast<uint32_t>(flags.Number("threads")));
  // The case that the others are compared with comes first.
  std::vector<const CaseWords*> cases = Chosen(flags, kCases);
  if (cases.front() != &kCases[0]) cases.insert(cases.begin(), &kCases[0]);
  std::vector<Side> sides;
  for (const CaseWords* const each : cases) {
    sides.push_back({.turn = [&, each](Times* times_us) {
      out->Show(each->name);
      return RunSlice(each->name, threads, flags.Real("seconds") / kSlices, times_us);
    }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({.seconds = 0, .least = kSlices}, &sides));
  const Summary base = Summarise(sides[0].times_us);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Summary times = Summarise(sides[i].times_us);
    Line line;
    line.Name("case", cases[i]->name, 8).Count("threads", threads, 7).Spread(times, "us");
    const auto ratio = [&](std::string_view title, double Summary::*member) {
      if (i == 0) return (void)line.Cell(title, 9, "-");
      line.Number(title, 9, 2, times.*member / base.*member);
    };
    ratio("ratio", &Summary::median);
    ratio("ratio p99", &Summary::p99);
    ratio("ratio max", &Summary::max);
    line.Target({.measured = times.p99 / base.p99, .bound = i == 0 ? 0.0 : 3.0});
    out->Print(line.Load(load));
  }
  return absl::OkStatus();
}

}  // namespace

Suite StallCommand() {
  return {.name = "stall",
          .summary = "ten small engines beside one with a round of a minute, or with new masks",
          .cases = WordsOf(kCases),
          .flags = {Flag::Seconds("20", "5"),
                    Flag::Whole("threads", "the daemon's; 0: all usable CPUs, at most 16", {0, 16},
                                "0")},
          .run = &RunStall};
}

}  // namespace specd::bench
