// The suite `stall`: the rounds and requests of ten small engines, alone and beside a neighbour
// that takes what it can get.
//
// The suite runs on the calling thread, beside a verify thread and a thread for each small engine.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/cpus.h"
#include "daemon/session/grammar_compilers.h"
#include "speculative/grammar/base/compile_turns.h"
#include "tools/bench/neighbour.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr int kSmallEngines = 10;
constexpr size_t kSlices = 5;  // of each case

// What the small engines repeat. A request opens a sequence with a short prompt, runs four rounds
// of it and closes it.
enum class SmallWork { kRounds, kRequests };
enum class Beside { kNothing, kMonster, kOpenings, kMasks };

struct StallCase {
  std::string_view name;
  std::string_view summary;
  SmallWork work;
  Beside beside;  // kNothing: the base of the cases with this work
};
constexpr StallCase kCases[] = {
    {"alone", "rounds of ten small engines", SmallWork::kRounds, Beside::kNothing},
    {"monster",
     "the same beside an engine whose round has 640 sequences of 65 rows with 2^20 elements",
     SmallWork::kRounds, Beside::kMonster},
    {"masks", "the same beside an engine that needs 65 new masks in each round", SmallWork::kRounds,
     Beside::kMasks},
    {"requests", "openings with short prompts, and four rounds of each, of ten small engines",
     SmallWork::kRequests, Beside::kNothing},
    {"openings", "the same beside an engine whose constraints use up the budget of a compile",
     SmallWork::kRequests, Beside::kOpenings},
};

// One round or request at least, however late the thread begins.
absl::StatusOr<Times> RunUntil(SteadyClock::time_point end, SmallWork work, const std::string& name,
                               SessionEngine& engine) {
  constexpr int kRequestRounds = 4;
  const std::vector<TokenId> prompt(32, kBest);
  const bool has_sequence = work == SmallWork::kRounds;
  if (has_sequence) SPECD_TRY(engine.Open(name, Greedy()));
  Times times_us;
  do {
    const SteadyClock::time_point start = SteadyClock::now();
    if (!has_sequence) SPECD_TRY(engine.Open(name, Greedy(), {.prompt = prompt, .outputs = {}}));
    for (int i = 0; i < (has_sequence ? 1 : kRequestRounds); ++i) SPECD_TRY(engine.RunRound());
    if (!has_sequence) SPECD_TRY(engine.CloseAll());
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
    // As daemon/daemon.cc and daemon/main.cc have it.
    (void)mallopt(M_ARENA_MAX, 256);
    grammar::CompileTurns::OfProcess().Bound(2);
    options_.limits = LimitsOf(2, 4);
    for (int i = 0; i < kSmallEngines; ++i) {
      SPECD_TAKE(small_.emplace_back(), loop_.Attach(options_, kBest, /*has_drafts=*/true));
    }
    return absl::OkStatus();
  }

  absl::Status RunSlice(const StallCase& what, double seconds, Times* all_us) {
    SPECD_TRY(Begin(what.beside));
    const SteadyClock::time_point end =
        SteadyClock::now() + std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
    std::vector<std::future<absl::StatusOr<Times>>> works;
    for (size_t i = 0; i < small_.size(); ++i) {
      works.push_back(std::async(std::launch::async, [&, i] {
        return RunUntil(end, what.work, fmt::format("small {}", i), *small_[i]);
      }));
    }
    for (auto& work : works) {
      SPECD_TAKE(const Times times_us, work.get());
      all_us->insert(all_us->end(), times_us.begin(), times_us.end());
    }
    return End();
  }

 private:
  // Attaches a neighbour, which begins its work.
  absl::Status Begin(Beside beside) {
    if (beside == Beside::kNothing) return absl::OkStatus();
    const bool is_monster = beside == Beside::kMonster;
    SessionOptions options = options_;
    options.limits = LimitsOf(1, 64);
    if (is_monster) {
      // Legal, and takes a minute or more.
      options.limits.vocab_size = kVocabSizeMax;
      options.limits.max_batch = options.limits.max_sequences = 640;
    } else {
      options.profile = &constrained_;
      options.grammars = &compilers_;
    }
    const TokenId best = is_monster ? kBest : vocabulary_.Tokenize("a").front();
    SPECD_TAKE(neighbour_, loop_.Attach(options, best, /*has_drafts=*/true));
    if (!is_monster) {
      work_ = std::make_unique<Neighbour>(neighbour_.get(), beside == Beside::kMasks
                                                                ? Neighbour::NewMasks
                                                                : Neighbour::HostileOpening);
      return absl::OkStatus();
    }
    SequenceParams params = Greedy();
    params.temperature = 1;
    params.top_p = 0.95;
    for (uint32_t i = 0; i < options.limits.max_batch; ++i) {
      SPECD_TRY(neighbour_->Open(fmt::format("monster {}", i), params));
    }
    return neighbour_->Submit();
  }

  // The neighbour hangs up. An error if its work was not what the case is about.
  absl::Status End() {
    if (neighbour_ == nullptr) return absl::OkStatus();
    absl::Status status;
    if (work_ != nullptr) {
      status = work_->Stop().status();
      work_.reset();
    } else if (const absl::StatusOr<bool> ended = neighbour_->Poll(); !ended.ok() || *ended) {
      status = Broken("the monster's round ended before the small ones");
    }
    loop_.Detach(*neighbour_);
    neighbour_.reset();
    return status;
  }

  const SyntheticVocabulary vocabulary_;
  ModelProfile constrained_;  // of neighbours with constraints
  GrammarCompilers compilers_{&constrained_};
  SessionOptions options_;
  LoopScene loop_;
  std::vector<std::unique_ptr<SessionEngine>> small_;
  std::unique_ptr<SessionEngine> neighbour_;
  std::unique_ptr<Neighbour> work_;  // null: a monster, or no neighbour
};

absl::Status RunStall(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  const int32_t threads = ResolveThreads(static_cast<uint32_t>(flags.Number("threads")));
  StallScene scene(threads);
  SPECD_TRY(scene.Start());
  out->Begin(machine.processor, Describe(machine, threads));
  // The cases that were asked for, each after its base.
  const std::vector<const StallCase*> wanted = Chosen(flags, kCases);
  std::vector<const StallCase*> cases;
  std::vector<Side> sides;
  for (const StallCase& each : kCases) {
    const bool is_needed = std::ranges::any_of(wanted, [&](const StallCase* other) {
      return other == &each || (each.beside == Beside::kNothing && other->work == each.work);
    });
    if (!is_needed) continue;
    cases.push_back(&each);
    sides.push_back({.turn = [&](Times* times_us) {
      out->Show(each.name);
      return scene.RunSlice(each, flags.Real("seconds") / kSlices, times_us);
    }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({0, kSlices, kSlices}, 0, &sides));
  Summary base;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Summary times = Summarise(sides[i].times_us);
    const bool is_base = cases[i]->beside == Beside::kNothing;
    if (is_base) base = times;
    Line line;
    line.Name("case", cases[i]->name, 8)
        .Count("threads", threads, 7)
        .Cell("samples", 8, "{}", times.num_samples)
        .Cell("median us", 9, "{:.1f}", times.median)
        .Cell("p90 us", 9, "{:.1f}", times.p90)
        .Cell("p99 us", 9, "{:.1f}", times.p99)
        .Cell("max us", 10, "{:.1f}", times.max)
        .Json("unit", "us")
        .Times("", times);
    out->Print(line.Ratios(times, is_base ? nullptr : &base).Load(load));
  }
  return absl::OkStatus();
}

}  // namespace

Suite StallCommand() {
  return {.name = "stall",
          .summary =
              "ten small engines beside one with a round of a minute, new masks or hostile "
              "openings",
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
