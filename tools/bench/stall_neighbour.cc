#include "tools/bench/stall_neighbour.h"

#include <fmt/format.h>

#include <limits>
#include <random>
#include <string>
#include <utility>

#include "speculative/grammar/base/compile_cancel.h"

namespace specd::bench {
namespace {

// Calls Open on a thread that ends with it.
absl::Status OpenOnThread(StallEngine& engine, const std::string& name,
                          const SequenceParams& params) {
  absl::Status status;
  std::thread thread([&] { status = engine.Open(name, params); });
  thread.join();
  return status;
}

// Each of its patterns has an automaton of 2^14 states.
absl::Status OpenHostile(StallEngine& engine, uint64_t number) {
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
  const absl::Status status = OpenOnThread(engine, "hostile", params);
  if (grammar::CompileCancel::IsAsked()) return absl::OkStatus();
  if (status.ok()) return absl::InternalError("stall: a hostile constraint was compiled");
  const bool is_spent = std::string(status.message()).find("compile_m") != std::string::npos;
  return is_spent ? absl::OkStatus() : status;
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

absl::Status RunMasked(StallEngine& engine, uint64_t number) {
  SequenceParams params;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.temperature = 0;
  params.grammar_kind = grammar::GrammarKind::kRegex;
  params.grammar_text = ManyPlaces(number);
  if (absl::Status status = OpenOnThread(engine, "masked", params); !status.ok()) {
    return grammar::CompileCancel::IsAsked() ? absl::OkStatus() : status;
  }
  // Less than all its places, so that all drafts stand.
  for (int round = 0; round < 15; ++round) {
    const absl::StatusOr<RoundStatus> status = engine.RunRound(true);
    if (!status.ok()) return status.status();
  }
  return engine.CloseAll();
}

}  // namespace

std::unique_ptr<StallNeighbour> StallNeighbour::Openings(StallEngine* engine) {
  return std::unique_ptr<StallNeighbour>(new StallNeighbour(engine, OpenHostile));
}

std::unique_ptr<StallNeighbour> StallNeighbour::Masks(StallEngine* engine) {
  return std::unique_ptr<StallNeighbour>(new StallNeighbour(engine, RunMasked));
}

StallNeighbour::StallNeighbour(StallEngine* engine, Step step)
    : engine_(*engine), step_(std::move(step)), thread_([this] { Run(); }) {}

StallNeighbour::~StallNeighbour() {
  if (thread_.joinable()) (void)Stop();
}

absl::Status StallNeighbour::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  const grammar::CompileCancel cancel;
  thread_.join();
  return status_;
}

void StallNeighbour::Run() {
  // Two scenes of a process repeat no constraint.
  static std::atomic<uint64_t> next{1};
  while (status_.ok() && !stop_.load(std::memory_order_relaxed)) {
    status_ = step_(engine_, next.fetch_add(1, std::memory_order_relaxed));
  }
}

}  // namespace specd::bench
