#include "tools/bench/grammar_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/base/cpus.h"
#include "kernels/core/check.h"
#include "tools/bench/grammar_fill.h"
#include "tools/bench/suite.h"

namespace specd::bench {
namespace {

// The samples of a run are kept, some thousands of them.
TimingBounds RunsFor(double seconds) { return {.seconds = seconds, .least = 2, .most = 1000}; }

struct Target {
  GrammarCase grammar_case;
  double median_us;
  double p99_us;
};
// The targets of the design, at the vocabulary of kTargetVocabSize.
constexpr Target kTargets[] = {{GrammarCase::kCompile, 1000, 50'000},
                               {GrammarCase::kWarmMask, 1, 100}};
constexpr int32_t kTargetVocabSize = 128256;

// The batches of kFillThreads: constrained sequences.
constexpr int32_t kBatches[] = {1, 8, 64};

}  // namespace

// The bytes that are added along the tokens: states, and mask rows, which the compiler keeps.
absl::StatusOr<size_t> GrammarSuite::MemoryOf(const GrammarText& text,
                                              std::span<const TokenId> tokens) {
  const size_t before = compiler_.mask_bytes();
  auto compiled = compiler_.CompileAnew({.kind = text.kind, .text = std::string(text.text)});
  if (!compiled.ok()) return compiled.status();
  const auto matcher = (*compiled)->NewMatcher({.stop_ids = {tokens.back()}});
  for (const TokenId token : tokens) {
    matcher->Mask();
    matcher->Accept(token);
  }
  return (*compiled)->size_bytes() + compiler_.mask_bytes() - before;
}

absl::StatusOr<GrammarSuite::Lane> GrammarSuite::MakeLane(const GrammarText& text,
                                                          std::vector<TokenId> tokens,
                                                          std::string_view* refused_by) {
  constexpr auto kMemory = static_cast<size_t>(GrammarCase::kMemory);
  Lane lane = {.text = &text,
               .replay = {&compiler_,
                          {.kind = text.kind, .text = std::string(text.text)},
                          tokens,
                          options_.vocab_size}};
  *refused_by = "specd";
  if (absl::Status status = lane.replay.Check(); !status.ok()) return status;
  const absl::StatusOr<size_t> own_bytes = MemoryOf(text, tokens);
  if (!own_bytes.ok()) return own_bytes.status();
  lane.own[kMemory].push_back(static_cast<double>(*own_bytes));
  if (peer_ == nullptr) return lane;
  *refused_by = GrammarPeer::kName;
  const absl::StatusOr<size_t> peer_bytes = peer_->Add(text, tokens);
  if (!peer_bytes.ok()) return peer_bytes.status();
  lane.peer[kMemory].push_back(static_cast<double>(*peer_bytes));
  return lane;
}

absl::Status GrammarSuite::Prepare() {
  for (const GrammarText* text : options_.texts) {
    hooks_.on_progress(fmt::format("checking {}", text->name));
    for (const std::string_view instance : text->instances) {
      std::vector<TokenId> tokens = vocabulary_.Tokenize(instance);
      tokens.push_back(vocabulary_.eos_id());
      std::string_view refused_by;
      absl::StatusOr<Lane> lane = MakeLane(*text, std::move(tokens), &refused_by);
      if (lane.ok()) {
        lanes_.push_back(*std::move(lane));
        continue;
      }
      const std::string message(lane.status().message());
      // The engine took the constraint, and its masks are wrong.
      if (lane.status().code() == absl::StatusCode::kInternal) {
        return absl::InternalError(fmt::format("{}: {}", text->name, message));
      }
      refusals_.push_back({.constraint = std::string(text->name),
                           .vocab_size = options_.vocab_size,
                           .unit = "us",
                           .refusal = message,
                           .refused_by = refused_by});
      break;
    }
  }
  return absl::OkStatus();
}

bool GrammarSuite::IsRefused(std::string_view constraint) const {
  return std::any_of(refusals_.begin(), refusals_.end(), [&](const GrammarMeasurement& refusal) {
    return refusal.constraint == constraint;
  });
}

absl::Status GrammarSuite::Run() {
  if (hooks_.make_peer != nullptr) {
    absl::StatusOr<std::unique_ptr<GrammarPeer>> made = hooks_.make_peer(vocabulary_);
    if (!made.ok()) return made.status();
    peer_ = *std::move(made);
  }
  if (absl::Status status = Prepare(); !status.ok()) return status;

  const bool has_replays = std::any_of(
      options_.cases.begin(), options_.cases.end(),
      [](GrammarCase grammar_case) { return grammar_case != GrammarCase::kFillThreads; });
  if (has_replays && !lanes_.empty()) {
    if (absl::Status status = Replay(); !status.ok()) return status;
  }
  for (const GrammarMeasurement& refusal : refusals_) hooks_.on_result(refusal);
  if (Has(GrammarCase::kFillThreads)) Fill();
  return absl::OkStatus();
}

bool GrammarSuite::Has(GrammarCase grammar_case) const {
  return std::find(options_.cases.begin(), options_.cases.end(), grammar_case) !=
         options_.cases.end();
}

absl::Status GrammarSuite::Replay() {
  const LoadMeter meter;
  const absl::Status status = Repeat(RunsFor(options_.seconds), [&](size_t run) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      hooks_.on_progress(fmt::format("run {}: {}", run + 1, lane.text->name));
      // The engines take turns to be the first.
      const bool is_own_first = run % 2 == 0;
      if (is_own_first) lane.replay.Run(&lane.own);
      if (peer_ != nullptr) {
        if (absl::Status s = peer_->Run(i, &lane.peer); !s.ok()) return s;
      }
      if (!is_own_first) lane.replay.Run(&lane.own);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  const ForeignLoad load = meter.Read();
  Report(kAllConstraints, load);
  if (!options_.each) return absl::OkStatus();
  for (const GrammarText* text : options_.texts) Report(text->name, load);
  return absl::OkStatus();
}

void GrammarSuite::Fill() {
  std::vector<GrammarFill::Text> texts;
  for (const GrammarText* text : options_.texts) {
    if (IsRefused(text->name)) continue;
    for (const std::string_view instance : text->instances) {
      texts.push_back({.request = {.kind = text->kind, .text = std::string(text->text)},
                       .tokens = vocabulary_.Tokenize(instance)});
      texts.back().tokens.push_back(vocabulary_.eos_id());
    }
  }
  if (!GrammarFill::IsAnyLongEnough(texts)) return;
  const GrammarFill fill(&compiler_, std::move(texts), options_.vocab_size);
  std::vector<GrammarFill::Batch> batches;
  for (const int32_t num_sequences : kBatches) {
    batches.push_back({.num_sequences = num_sequences, .threads = 1});
    const int32_t all = ResolveThreads(0);
    if (all > 1) batches.push_back({.num_sequences = num_sequences, .threads = all});
  }
  std::vector<GrammarFill::Samples> samples(batches.size());
  const LoadMeter meter;
  const absl::Status status = Repeat(RunsFor(options_.seconds), [&](size_t run) {
    hooks_.on_progress(fmt::format("run {}: fill_threads", run + 1));
    for (size_t i = 0; i < batches.size(); ++i) {
      const GrammarFill::Samples made = fill.Run(batches[i]);
      samples[i].cold.insert(samples[i].cold.end(), made.cold.begin(), made.cold.end());
      samples[i].warm.insert(samples[i].warm.end(), made.warm.begin(), made.warm.end());
    }
    return absl::OkStatus();
  });
  SPECD_CHECK(status.ok());
  const ForeignLoad load = meter.Read();
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const bool is_cold : {true, false}) {
      GrammarMeasurement measurement = {.grammar_case = GrammarCase::kFillThreads,
                                        .vocab_size = options_.vocab_size,
                                        .unit = "us",
                                        .load = load};
      measurement.constraint = fmt::format("b{}_{}_t{}", batches[i].num_sequences,
                                           is_cold ? "cold" : "warm", batches[i].threads);
      measurement.value = Summarise(is_cold ? samples[i].cold : samples[i].warm);
      measurement.num_checked = batches[i].num_sequences * (GrammarFill::kDraft + 1);
      hooks_.on_result(measurement);
    }
  }
}

void GrammarSuite::Report(std::string_view constraint, const ForeignLoad& load) const {
  for (const GrammarCase grammar_case : options_.cases) {
    GrammarMeasurement measurement = {.grammar_case = grammar_case,
                                      .constraint = std::string(constraint),
                                      .vocab_size = options_.vocab_size,
                                      .unit = grammar_case == GrammarCase::kMemory ? "bytes" : "us",
                                      .base_of = peer_ == nullptr ? "" : GrammarPeer::kName,
                                      .load = load};
    std::vector<double> own;
    std::vector<double> peer;
    for (const Lane& lane : lanes_) {
      if (constraint != kAllConstraints && constraint != lane.text->name) continue;
      measurement.num_checked += static_cast<int64_t>(lane.replay.num_tokens());
      const std::vector<double>& of_own = lane.own[static_cast<size_t>(grammar_case)];
      const std::vector<double>& of_peer = lane.peer[static_cast<size_t>(grammar_case)];
      own.insert(own.end(), of_own.begin(), of_own.end());
      peer.insert(peer.end(), of_peer.begin(), of_peer.end());
    }
    // A text shorter than a draft has no round.
    if (own.empty()) continue;
    measurement.value = Summarise(own);
    if (!peer.empty()) measurement.base = Summarise(peer);
    for (const Target& target : kTargets) {
      if (target.grammar_case != grammar_case || constraint != kAllConstraints ||
          options_.vocab_size != kTargetVocabSize) {
        continue;
      }
      measurement.target = target.median_us;
      measurement.target_p99 = target.p99_us;
    }
    hooks_.on_result(measurement);
  }
}

}  // namespace specd::bench
