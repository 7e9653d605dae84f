// The suite `stall`: the rounds of ten small engines, alone and beside a neighbour that takes what
// it can get.
//
// The suite runs on the calling thread, beside a verify thread and a thread for each engine that
// works.
#include <fmt/format.h>
#include <malloc.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/cpus.h"
#include "daemon/session/grammar_compilers.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr int kSmallEngines = 10;
constexpr size_t kSlices = 5;  // of each case

constexpr CaseWords kCases[] = {
    {"alone", "rounds of ten small engines"},
    {"monster",
     "the same beside an engine whose round has 640 sequences of 65 rows with 2^20 elements"},
    {"masks", "the same beside an engine that needs 65 new masks in each round"},
};

// 1024 places, each with another set of 20 letters that has "a".
std::string ManyPlaces(uint64_t number) {
  constexpr int kPlaces = 1024;
  std::mt19937_64 random(number);
  std::string pattern;
  for (int place = 0; place < kPlaces; ++place) {
    std::string letters = "bcdefghijklmnopqrstuvwxyz ";
    while (letters.size() > 19) letters.erase(random() % letters.size(), 1);
    pattern += "[a" + letters + "]";
  }
  return pattern;
}

// Rounds of a sequence that needs a mask of its own at each place of a long draft, whose constraint
// is new each time. One round at least.
absl::Status RunMasks(SessionEngine& engine, const std::atomic<bool>& stop) {
  static std::atomic<uint64_t> next{1};
  do {
    SequenceParams params = Greedy();
    params.grammar_kind = grammar::GrammarKind::kRegex;
    params.grammar_text = ManyPlaces(next++);
    absl::Status opened;
    // An opening has a thread of its own, as in OpeningThreads: a long compile lowers its priority.
    std::thread([&] { opened = engine.Open("masks", params); }).join();
    SPECD_TRY(opened);
    // Less than all its places, so that all drafts are accepted.
    for (int round = 0; round < 15 && !stop; ++round) SPECD_TRY(engine.RunRound().status());
    SPECD_TRY(engine.CloseAll());
  } while (!stop);
  return absl::OkStatus();
}

// One round at least, however late the thread begins.
absl::StatusOr<Times> RunUntil(SteadyClock::time_point end, const std::string& name,
                               SessionEngine& engine) {
  SPECD_TRY(engine.Open(name, Greedy()));
  Times times_us;
  do {
    const SteadyClock::time_point start = SteadyClock::now();
    SPECD_TRY(engine.RunRound().status());
    times_us.push_back(MicrosSince(start));
  } while (SteadyClock::now() < end);
  SPECD_TRY(engine.CloseAll());
  return times_us;
}

// Ten small engines with four drafts over 32,000 tokens, and one neighbour.
class StallScene {
 public:
  explicit StallScene(int32_t threads) : vocabulary_(static_cast<int32_t>(kSmallVocabSize)) {
    constrained_.vocabulary = vocabulary_.vocabulary();
    constrained_.eos_token_ids = {vocabulary_.eos_id()};
    options_.threads = threads;
  }

  absl::Status Start() {
    (void)mallopt(M_ARENA_MAX, 256);  // as daemon/main.cc has it
    options_.limits = LimitsOf(1, 4);
    for (int i = 0; i < kSmallEngines; ++i) {
      SPECD_TAKE(small_.emplace_back(), loop_.Attach(options_, kBest, /*has_drafts=*/true));
    }
    return absl::OkStatus();
  }

  absl::Status RunSlice(std::string_view name, double seconds, Times* all_us) {
    SPECD_TAKE(const auto neighbour, Attach(name));
    std::atomic<bool> stop{false};
    std::future<absl::Status> masks;
    if (name == "masks") {
      masks = std::async(std::launch::async, [&] { return RunMasks(*neighbour, stop); });
    }
    const SteadyClock::time_point end =
        SteadyClock::now() + std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
    std::vector<std::future<absl::StatusOr<Times>>> works;
    for (size_t i = 0; i < small_.size(); ++i) {
      works.push_back(std::async(std::launch::async, [&, i] {
        return RunUntil(end, fmt::format("small {}", i), *small_[i]);
      }));
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
      const absl::StatusOr<bool> ended = neighbour->Poll();
      if (!ended.ok() || *ended) status.Update(Broken("the monster's round ended too early"));
    }
    if (neighbour != nullptr) loop_.Detach(*neighbour);
    return status;
  }

 private:
  // The neighbour of a case; null if it has none. A monster begins its round.
  absl::StatusOr<std::unique_ptr<SessionEngine>> Attach(std::string_view name) {
    SessionOptions options = options_;
    if (name == "masks") {
      options.limits = LimitsOf(1, 64);
      options.profile = &constrained_;
      options.grammars = &compilers_;
      return loop_.Attach(options, vocabulary_.Tokenize("a").front(), /*has_drafts=*/true);
    }
    if (name != "monster") return nullptr;
    // Legal, and takes a minute or more.
    options.limits = LimitsOf(640, 64, kVocabSizeMax);
    SPECD_TAKE(auto monster, loop_.Attach(options, kBest, /*has_drafts=*/true));
    SequenceParams params = Greedy();
    params.temperature = 1;
    params.top_p = 0.95;
    for (uint32_t i = 0; i < options.limits.max_batch; ++i) {
      SPECD_TRY(monster->Open(fmt::format("monster {}", i), params));
    }
    SPECD_TRY(monster->Submit());
    return monster;
  }

  const SyntheticVocabulary vocabulary_;
  ModelProfile constrained_;  // of the neighbour with constraints
  GrammarCompilers compilers_{&constrained_};
  SessionOptions options_;
  LoopScene loop_;
  std::vector<std::unique_ptr<SessionEngine>> small_;
};

absl::Status RunStall(const Flags& flags, Output* out) {
  const int32_t threads = ResolveThreads(static_cast<uint32_t>(flags.Number("threads")));
  StallScene scene(threads);
  SPECD_TRY(scene.Start());
  // The case that the others are compared with comes first.
  std::vector<const CaseWords*> cases = Chosen(flags, kCases);
  std::erase(cases, &kCases[0]);
  cases.insert(cases.begin(), &kCases[0]);
  std::vector<Side> sides;
  for (const CaseWords* const each : cases) {
    sides.push_back({.turn = [&, each](Times* times_us) {
      out->Show(each->name);
      return scene.RunSlice(each->name, flags.Real("seconds") / kSlices, times_us);
    }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({0, kSlices, kSlices}, 0, &sides));
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
          .examples = {"--quick --markdown", "--case=masks --threads=2"},
          .cases = WordsOf(kCases),
          .seconds = "20",
          .quick_seconds = "5",
          .flags = {Flag::Whole("threads",
                                "threads of each session's rounds; 0: all usable CPUs, at most 16",
                                {0, kThreadsMax}, "0")},
          .run = &RunStall};
}

}  // namespace specd::bench
