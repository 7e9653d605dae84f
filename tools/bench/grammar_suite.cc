#include "tools/bench/grammar_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/base/cpus.h"
#include "speculative/grammar/specd_backend.h"
#include "tools/bench/grammar_fill.h"
#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

using grammar::GrammarBackend;
using grammar::SpecdBackend;

constexpr size_t kRunsMin = 2;
// The samples of a run are kept, some thousands of them.
constexpr size_t kRunsMax = 1000;

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

SteadyClock::time_point EndAfter(double seconds) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

// The bytes that are added along the tokens: states, and mask rows, which the backend keeps.
absl::StatusOr<size_t> MemoryOf(const GrammarBackend& backend,
                                absl::FunctionRef<size_t()> row_bytes,
                                const grammar::GrammarRequest& request,
                                std::span<const TokenId> tokens) {
  const size_t before = row_bytes();
  auto compiled = backend.Compile(request);
  if (!compiled.ok()) return compiled.status();
  const auto matcher = (*compiled)->NewMatcher({.stop_ids = {tokens.back()}});
  for (const TokenId token : tokens) {
    matcher->Mask();
    matcher->Accept(token);
  }
  return (*compiled)->size_bytes() + row_bytes() - before;
}

}  // namespace

absl::Status GrammarSuite::PrepareLane(const std::vector<const GrammarBackend*>& engines,
                                       const std::vector<TokenId>& tokens, Lane* lane,
                                       size_t* at) const {
  const grammar::GrammarRequest request = {.kind = lane->text->kind,
                                           .text = std::string(lane->text->text)};
  for (*at = 0; *at < engines.size(); ++*at) {
    const GrammarBackend& backend = *engines[*at];
    lane->replays.emplace_back(&backend, request, tokens, options_.vocab_size);
    absl::Status status = lane->replays.back().Check();
    // The first engine is specd's own.
    const auto row_bytes = [&] {
      return *at == 0 ? static_cast<const SpecdBackend&>(backend).mask_bytes() : 0;
    };
    const absl::StatusOr<size_t> memory =
        status.ok() ? MemoryOf(backend, row_bytes, request, tokens) : status;
    if (!memory.ok()) return memory.status();
    lane->samples.emplace_back();
    lane->samples.back()[static_cast<size_t>(GrammarCase::kMemory)].push_back(
        static_cast<double>(*memory));
  }
  return absl::OkStatus();
}

absl::Status GrammarSuite::Prepare(const GrammarBackend* own, const GrammarBackend* peer) {
  std::vector<const GrammarBackend*> engines = {own};
  if (peer != nullptr) engines.push_back(peer);
  for (const GrammarText* text : options_.texts) {
    hooks_.on_progress(fmt::format("checking {}", text->name));
    for (const std::string_view instance : text->instances) {
      std::vector<TokenId> tokens = vocabulary_.Tokenize(instance);
      tokens.push_back(vocabulary_.eos_id());
      Lane lane = {.text = text, .replays = {}, .samples = {}};
      size_t engine = 0;
      const absl::Status status = PrepareLane(engines, tokens, &lane, &engine);
      if (status.ok()) {
        lanes_.push_back(std::move(lane));
        continue;
      }
      const std::string message(status.message());
      // The engine took the constraint, and its masks are wrong.
      if (status.code() == absl::StatusCode::kInternal) {
        return absl::Status(status.code(), fmt::format("{}: {}", text->name, message));
      }
      refusals_.push_back({.constraint = std::string(text->name),
                           .vocab_size = options_.vocab_size,
                           .unit = "us",
                           .refusal = message,
                           .refused_by = engines[engine]->name()});
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
  absl::StatusOr<std::unique_ptr<SpecdBackend>> own = SpecdBackend::Create(
      {.vocabulary = &vocabulary_.vocabulary(), .vocab_size = options_.vocab_size});
  if (!own.ok()) return own.status();
  std::shared_ptr<GrammarBackend> peer;
  if (hooks_.make_peer != nullptr) {
    absl::StatusOr<std::shared_ptr<GrammarBackend>> made =
        hooks_.make_peer(vocabulary_.vocabulary());
    if (!made.ok()) return made.status();
    peer = *std::move(made);
  }
  if (absl::Status status = Prepare(own->get(), peer.get()); !status.ok()) return status;

  const bool has_replays = std::any_of(
      options_.cases.begin(), options_.cases.end(),
      [](GrammarCase grammar_case) { return grammar_case != GrammarCase::kFillThreads; });
  if (has_replays && !lanes_.empty()) Replay(peer == nullptr ? "" : peer->name());
  for (const GrammarMeasurement& refusal : refusals_) hooks_.on_result(refusal);
  if (Has(GrammarCase::kFillThreads)) Fill(**own);
  return absl::OkStatus();
}

bool GrammarSuite::Has(GrammarCase grammar_case) const {
  return std::find(options_.cases.begin(), options_.cases.end(), grammar_case) !=
         options_.cases.end();
}

void GrammarSuite::Replay(std::string_view peer) {
  const LoadMeter meter;
  const SteadyClock::time_point end = EndAfter(options_.seconds);
  for (size_t run = 0; run < kRunsMin || (run < kRunsMax && SteadyClock::now() < end); ++run) {
    for (Lane& lane : lanes_) {
      hooks_.on_progress(fmt::format("run {}: {}", run + 1, lane.text->name));
      // The engines take turns to be the first.
      for (size_t i = 0; i < lane.replays.size(); ++i) {
        const size_t engine = (i + run) % lane.replays.size();
        lane.replays[engine].Run(&lane.samples[engine]);
      }
    }
  }
  const ForeignLoad load = meter.Read();
  Report(kAllConstraints, peer, load);
  if (!options_.each) return;
  for (const GrammarText* text : options_.texts) Report(text->name, peer, load);
}

void GrammarSuite::Fill(const GrammarBackend& own) {
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
  const GrammarFill fill(&own, std::move(texts), options_.vocab_size);
  std::vector<GrammarFill::Batch> batches;
  for (const int32_t num_sequences : kBatches) {
    batches.push_back({.num_sequences = num_sequences, .threads = 1});
    const int32_t all = ResolveThreads(0);
    if (all > 1) batches.push_back({.num_sequences = num_sequences, .threads = all});
  }
  std::vector<GrammarFill::Samples> samples(batches.size());
  const LoadMeter meter;
  const SteadyClock::time_point end = EndAfter(options_.seconds);
  for (size_t run = 0; run < kRunsMin || (run < kRunsMax && SteadyClock::now() < end); ++run) {
    hooks_.on_progress(fmt::format("run {}: fill_threads", run + 1));
    for (size_t i = 0; i < batches.size(); ++i) {
      const GrammarFill::Samples made = fill.Run(batches[i]);
      samples[i].cold.insert(samples[i].cold.end(), made.cold.begin(), made.cold.end());
      samples[i].warm.insert(samples[i].warm.end(), made.warm.begin(), made.warm.end());
    }
  }
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

void GrammarSuite::Report(std::string_view constraint, std::string_view peer,
                          const ForeignLoad& load) const {
  for (const GrammarCase grammar_case : options_.cases) {
    GrammarMeasurement measurement = {.grammar_case = grammar_case,
                                      .constraint = std::string(constraint),
                                      .vocab_size = options_.vocab_size,
                                      .unit = grammar_case == GrammarCase::kMemory ? "bytes" : "us",
                                      .base_of = peer,
                                      .load = load};
    std::vector<std::vector<double>> values(peer.empty() ? 1 : 2);
    for (const Lane& lane : lanes_) {
      if (constraint != kAllConstraints && constraint != lane.text->name) continue;
      measurement.num_checked += static_cast<int64_t>(lane.replays[0].num_tokens());
      for (size_t engine = 0; engine < values.size(); ++engine) {
        const std::vector<double>& from = lane.samples[engine][static_cast<size_t>(grammar_case)];
        values[engine].insert(values[engine].end(), from.begin(), from.end());
      }
    }
    // A text shorter than a draft has no round.
    if (values[0].empty()) continue;
    measurement.value = Summarise(values[0]);
    if (!peer.empty()) measurement.base = Summarise(values[1]);
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
