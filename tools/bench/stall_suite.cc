// The suite `stall`: the rounds and requests of ten small engines, alone and beside a neighbour
// that takes what it can get.
//
// The suite runs on the calling thread, beside a verify thread and a thread for each small engine.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/cpus.h"
#include "daemon/session/grammar_compilers.h"
#include "speculative/grammar/base/compile_turns.h"
#include "tools/bench/neighbour.h"
#include "tools/bench/slices.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::bench {
namespace {

constexpr int kSmallEngines = 10;

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
constexpr StallCase kStallCases[] = {
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

absl::Status RunRequest(SessionEngine& engine, const std::string& name) {
  constexpr int kRequestRounds = 4;
  constexpr int kPromptIds = 32;
  const std::vector<TokenId> prompt(kPromptIds, kBest);
  absl::Status status = engine.Open(name, Greedy(), {.prompt = prompt, .outputs = {}});
  for (int i = 0; i < kRequestRounds && status.ok(); ++i) status = engine.RunRound();
  return status.ok() ? engine.CloseAll() : status;
}

// One at least, however late the thread begins.
absl::Status RunUntil(SteadyClock::time_point end, SmallWork work, const std::string& name,
                      SessionEngine& engine, std::vector<double>* times_us) {
  const bool has_sequence = work == SmallWork::kRounds;
  if (has_sequence) {
    if (absl::Status status = engine.Open(name, Greedy()); !status.ok()) return status;
  }
  do {
    const SteadyClock::time_point start = SteadyClock::now();
    const absl::Status status = has_sequence ? engine.RunRound() : RunRequest(engine, name);
    if (!status.ok()) return status;
    times_us->push_back(MicrosSince(start));
  } while (SteadyClock::now() < end);
  return engine.CloseAll();
}

// Ten small engines with four drafts over 32,000 tokens, and one neighbour.
class StallScene {
 public:
  explicit StallScene(int32_t threads)
      : threads_(threads), vocabulary_(static_cast<int32_t>(kSmallVocabSize)) {
    constrained_.vocabulary = vocabulary_.vocabulary();
    constrained_.eos_token_ids = {vocabulary_.eos_id()};
  }

  absl::Status Start() {
    // As daemon/daemon.cc and daemon/main.cc have it.
    (void)mallopt(M_ARENA_MAX, 256);
    grammar::CompileTurns::OfProcess().Bound(2);
    SessionOptions options;
    options.limits = LimitsOf(2, 4);
    options.threads = threads_;
    for (int i = 0; i < kSmallEngines; ++i) {
      auto engine = loop_.Attach(options, kBest, /*has_drafts=*/true);
      if (!engine.ok()) return engine.status();
      small_.push_back(*std::move(engine));
    }
    return absl::OkStatus();
  }

  absl::Status RunSlice(const StallCase& what, double seconds, std::vector<double>* all_us) {
    absl::Status status = Begin(what.beside);
    if (!status.ok()) return status;
    const SteadyClock::time_point end =
        SteadyClock::now() + std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
    std::vector<std::vector<double>> times_us(small_.size());
    std::vector<absl::Status> statuses(small_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < small_.size(); ++i) {
      threads.emplace_back([&, i] {
        statuses[i] =
            RunUntil(end, what.work, fmt::format("small {}", i), *small_[i], &times_us[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < small_.size(); ++i) {
      if (!statuses[i].ok()) return statuses[i];
      all_us->insert(all_us->end(), times_us[i].begin(), times_us[i].end());
    }
    return End();
  }

 private:
  // Attaches a neighbour, which begins its work.
  absl::Status Begin(Beside beside) {
    if (beside == Beside::kNothing) return absl::OkStatus();
    const bool is_monster = beside == Beside::kMonster;
    SessionOptions options;
    options.limits = LimitsOf(1, 64);
    options.threads = threads_;
    if (is_monster) {
      // Legal, and takes a minute or more.
      options.limits.vocab_size = kVocabSizeMax;
      options.limits.max_batch = options.limits.max_sequences = 640;
    } else {
      options.profile = &constrained_;
      options.grammars = &compilers_;
    }
    auto engine = loop_.Attach(options, is_monster ? kBest : vocabulary_.Tokenize("a").front(),
                               /*has_drafts=*/true);
    if (!engine.ok()) return engine.status();
    neighbour_ = *std::move(engine);
    if (!is_monster) {
      work_ = std::make_unique<Neighbour>(neighbour_.get(), beside == Beside::kMasks
                                                                ? Neighbour::NewMasks()
                                                                : Neighbour::HostileOpening());
      return absl::OkStatus();
    }
    SequenceParams params;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    params.top_p = 0.95;
    for (uint32_t i = 0; i < options.limits.max_batch; ++i) {
      absl::Status status = neighbour_->Open(fmt::format("monster {}", i), params);
      if (!status.ok()) return status;
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

  const int32_t threads_;
  const SyntheticVocabulary vocabulary_;
  ModelProfile constrained_;  // of neighbours with constraints
  GrammarCompilers compilers_{&constrained_};
  LoopScene loop_;
  std::vector<std::unique_ptr<SessionEngine>> small_;
  std::unique_ptr<SessionEngine> neighbour_;
  std::unique_ptr<Neighbour> work_;  // null: a monster, or no neighbour
};

// The cases that were asked for, each after its base.
std::vector<Samples> ChosenStalls(const Flags& flags) {
  const std::vector<const StallCase*> wanted = Chosen(flags, kStallCases);
  std::vector<Samples> samples;
  size_t base = 0;
  for (size_t i = 0; i < std::size(kStallCases); ++i) {
    const StallCase& each = kStallCases[i];
    const bool is_base = each.beside == Beside::kNothing;
    if (is_base) base = i;
    const bool is_needed = std::any_of(wanted.begin(), wanted.end(), [&](const StallCase* other) {
      return other == &each || (is_base && other->work == each.work);
    });
    if (!is_needed) continue;
    samples.push_back({.index = i});
    if (!is_base) samples.back().base = base;
  }
  return samples;
}

absl::Status RunStall(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  const int32_t given = flags.Number("threads");
  const int32_t threads =
      given == 0 ? std::min(machine.usable_cpus, static_cast<int32_t>(kThreadsMax)) : given;
  StallScene scene(threads);
  absl::Status status = scene.Start();
  if (!status.ok()) return status;
  out->Begin(machine.processor, Describe(machine, threads));
  std::vector<Samples> samples = ChosenStalls(flags);
  const LoadMeter meter;
  status = TakeTurns(&samples, out, [&](Samples* of) {
    return scene.RunSlice(kStallCases[of->index], flags.Real("seconds") / kSlices, &of->times_us);
  });
  if (!status.ok()) return status;
  PrintAll(samples, meter.Read(), out, [&](const Samples& of, const Summary& times) {
    Line line;
    line.Name("case", kStallCases[of.index].name, 8)
        .Count("threads", threads, 7)
        .Cell("samples", 8, "{}", times.num_samples)
        .Cell("median us", 9, "{:.1f}", times.median)
        .Cell("p90 us", 9, "{:.1f}", times.p90)
        .Cell("p99 us", 9, "{:.1f}", times.p99)
        .Cell("max us", 10, "{:.1f}", times.max)
        .Json("unit", "us")
        .Times("", times);
    return line;
  });
  return absl::OkStatus();
}

}  // namespace

Suite StallCommand() {
  return {.name = "stall",
          .summary =
              "ten small engines beside one with a round of a minute, new masks or hostile "
              "openings",
          .examples = {"--quick --markdown", "--case=masks --threads=2"},
          .cases = WordsOf(kStallCases),
          .seconds = "20",
          .quick_seconds = "5",
          .flags = {{.name = "threads",
                     .kind = Flag::Kind::kWhole,
                     .help = "threads of each session's rounds; 0: all usable CPUs, at most 16",
                     .usual = "0",
                     .maximum = static_cast<double>(kThreadsMax)}},
          .run = &RunStall};
}

}  // namespace specd::bench
