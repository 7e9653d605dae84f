#include "tools/bench/neighbour.h"

#include <fmt/format.h>

#include <random>
#include <string>
#include <thread>
#include <utility>

#include "speculative/grammar/base/compile_cancel.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Opens a sequence on a thread that ends with the opening. Returns its time in us.
double OpenOnThread(SessionEngine& engine, const SequenceParams& params, absl::Status* status) {
  const SteadyClock::time_point start = SteadyClock::now();
  std::thread([&] { *status = engine.Open("neighbour", params); }).join();
  return MicrosSince(start);
}

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

}  // namespace

Neighbour::Step Neighbour::LongPrompt(size_t num_ids, uint32_t vocab_size) {
  // Ids that a linear congruential generator walks through, so that nearly all n-grams differ.
  std::vector<TokenId> prompt;
  uint32_t state = 1;
  while (prompt.size() < num_ids) {
    state = state * 1664525 + 1013904223;
    prompt.push_back(static_cast<TokenId>((state >> 8) % vocab_size));
  }
  return [prompt = std::move(prompt)](SessionEngine& engine, uint64_t) -> absl::StatusOr<double> {
    SequenceParams params;
    params.max_tokens = 1024;
    params.repetition_penalty = 1.1;
    params.no_repeat_ngram_size = 3;
    const SteadyClock::time_point start = SteadyClock::now();
    auto opened = engine.session()->OpenSequences("opened and closed", params,
                                                  {.prompt = prompt, .outputs = {}});
    const double time_us = MicrosSince(start);
    SPECD_TAKE(const auto sequences, std::move(opened));
    SPECD_TRY(engine.session()->CloseSequence(sequences.front().handle));
    return time_us;
  };
}

// Each of its patterns has an automaton of 2^14 states.
absl::StatusOr<double> Neighbour::HostileOpening(SessionEngine& engine, uint64_t number) {
  constexpr int kPatterns = 1000;
  std::string properties;
  for (int i = 0; i < kPatterns; ++i) {
    properties +=
        fmt::format(R"({}"p{}":{{"type":"string","not":{{"pattern":"^(a|b)*a(a|b){{13}}{}$"}}}})",
                    i == 0 ? "" : ",", i, number * kPatterns + static_cast<uint64_t>(i));
  }
  SequenceParams params;
  params.grammar_kind = grammar::GrammarKind::kJsonSchema;
  params.grammar_text = fmt::format(R"({{"type":"object","properties":{{{}}}}})", properties);
  absl::Status status;
  const double time_us = OpenOnThread(engine, params, &status);
  if (grammar::CompileCancel::IsAsked()) return time_us;
  if (status.ok()) return Broken("a hostile constraint was compiled");
  if (std::string(status.message()).find("compile_m") == std::string::npos) return status;
  return time_us;  // the budget is spent
}

absl::StatusOr<double> Neighbour::NewMasks(SessionEngine& engine, uint64_t number) {
  SequenceParams params = Greedy();
  params.grammar_kind = grammar::GrammarKind::kRegex;
  params.grammar_text = ManyPlaces(number);
  absl::Status status;
  const double time_us = OpenOnThread(engine, params, &status);
  if (!status.ok() && grammar::CompileCancel::IsAsked()) return time_us;
  SPECD_TRY(status);
  // Less than all its places, so that all drafts are accepted.
  for (int round = 0; round < 15; ++round) SPECD_TRY(engine.RunRound());
  SPECD_TRY(engine.CloseAll());
  return time_us;
}

Neighbour::Neighbour(SessionEngine* engine, Step step)
    : work_(std::async(std::launch::async,
                       [this, engine, step = std::move(step)] { return Run(*engine, step); })) {}

Neighbour::~Neighbour() {
  if (work_.valid()) (void)Stop();
}

absl::StatusOr<Times> Neighbour::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  const grammar::CompileCancel cancel;
  return work_.get();
}

absl::StatusOr<Times> Neighbour::Run(SessionEngine& engine, const Step& step) {
  // Two scenes of a process repeat no constraint.
  static std::atomic<uint64_t> next{1};
  Times times_us;
  while (!stop_.load(std::memory_order_relaxed)) {
    num_begun_.fetch_add(1, std::memory_order_relaxed);
    const auto time_us = step(engine, next.fetch_add(1, std::memory_order_relaxed));
    num_done_.fetch_add(1, std::memory_order_relaxed);
    SPECD_TAKE(times_us.emplace_back(), time_us);
  }
  return times_us;
}

}  // namespace specd::bench
