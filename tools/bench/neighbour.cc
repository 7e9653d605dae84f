#include "tools/bench/neighbour.h"

#include <fmt/format.h>

#include <limits>
#include <random>
#include <string>
#include <utility>

#include "speculative/grammar/base/compile_cancel.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

// Calls Open on a thread that ends with it.
absl::Status OpenOnThread(SessionEngine& engine, const std::string& name,
                          const SequenceParams& params) {
  absl::Status status;
  std::thread thread([&] { status = engine.Open(name, params); });
  thread.join();
  return status;
}

// Each of its patterns has an automaton of 2^14 states.
absl::StatusOr<double> OpenHostile(SessionEngine& engine, uint64_t number) {
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
  const SteadyClock::time_point start = SteadyClock::now();
  const absl::Status status = OpenOnThread(engine, "hostile", params);
  const double time_us = MicrosSince(start);
  if (grammar::CompileCancel::IsAsked()) return time_us;
  if (status.ok()) return Broken("a hostile constraint was compiled");
  const bool is_spent = std::string(status.message()).find("compile_m") != std::string::npos;
  return is_spent ? absl::StatusOr<double>(time_us) : status;
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

absl::StatusOr<double> RunMasked(SessionEngine& engine, uint64_t number) {
  SequenceParams params;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.temperature = 0;
  params.grammar_kind = grammar::GrammarKind::kRegex;
  params.grammar_text = ManyPlaces(number);
  const SteadyClock::time_point start = SteadyClock::now();
  absl::Status status = OpenOnThread(engine, "masked", params);
  const double time_us = MicrosSince(start);
  if (!status.ok() && grammar::CompileCancel::IsAsked()) return time_us;
  // Less than all its places, so that all drafts stand.
  for (int round = 0; round < 15 && status.ok(); ++round) status = engine.RunRound();
  if (status.ok()) status = engine.CloseAll();
  return status.ok() ? absl::StatusOr<double>(time_us) : status;
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
    const auto opened = engine.session()->OpenSequences("opened and closed", params,
                                                        {.prompt = prompt, .outputs = {}});
    const double time_us = MicrosSince(start);
    if (!opened.ok()) return opened.status();
    const absl::Status closed = engine.session()->CloseSequence(opened->front().handle);
    return closed.ok() ? absl::StatusOr<double>(time_us) : closed;
  };
}

Neighbour::Step Neighbour::HostileOpening() { return OpenHostile; }

Neighbour::Step Neighbour::NewMasks() { return RunMasked; }

Neighbour::Neighbour(SessionEngine* engine, Step step)
    : engine_(*engine), step_(std::move(step)), thread_([this] { Run(); }) {}

Neighbour::~Neighbour() {
  if (thread_.joinable()) (void)Stop();
}

absl::StatusOr<std::vector<double>> Neighbour::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  const grammar::CompileCancel cancel;
  thread_.join();
  if (!status_.ok()) return status_;
  return std::move(times_us_);
}

void Neighbour::Run() {
  // Two scenes of a process repeat no constraint.
  static std::atomic<uint64_t> next{1};
  while (status_.ok() && !stop_.load(std::memory_order_relaxed)) {
    num_begun_.fetch_add(1, std::memory_order_relaxed);
    const absl::StatusOr<double> time_us =
        step_(engine_, next.fetch_add(1, std::memory_order_relaxed));
    status_ = time_us.status();
    if (time_us.ok()) times_us_.push_back(*time_us);
    num_done_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace specd::bench
