// The suite `trace`: what a trace of level `rounds` adds to the rounds of an engine.
//
// Two embedded engines read equal rows: one is recorded, the other is not. Their rounds take turns.
// The writer's thread runs beside them, on the same processors.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr size_t kLeastPairs = 200;
constexpr size_t kWarmUpRounds = 5;
// The design's: what may be added to a round of so many sequences, in percent.
constexpr double kAddedMax = 3;
constexpr uint32_t kGoalBatch = 32;

struct Shape {
  uint32_t batch = 0;
  uint32_t draft = 0;
  uint32_t vocab_size = 0;
};

// `directory` is that of the trace; null: there is none.
absl::Status StartEngine(const Shape& shape, const char* directory, CEngine* engine) {
  specd_options options = CEngine::Options(shape.vocab_size, shape.batch, shape.draft);
  options.trace = directory;
  SPECD_TRY(engine->Start("embedded:cpu", options, {.are_drawn = true}));
  return engine->Open("sequence", shape.batch, CEngine::Params(0.8));
}

uint64_t BytesOfTrace(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".mcap") bytes += entry.file_size();
  }
  return bytes;
}

absl::Status Measure(const Shape& shape, double seconds, Output* out) {
  SPECD_TAKE(const auto folder, TemporaryFolder::Make());
  CEngine engines[2];
  SPECD_TRY(StartEngine(shape, nullptr, &engines[0]));
  SPECD_TRY(StartEngine(shape, folder->path().c_str(), &engines[1]));
  std::vector<Side> sides;
  for (CEngine& engine : engines) {
    sides.push_back({.turn = [&](Times* times_us) -> absl::Status {
      SPECD_TAKE(times_us->emplace_back(), engine.RunRound(shape.draft));
      return absl::OkStatus();
    }});
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({seconds, kLeastPairs, kWarmUpRounds}, &sides));
  if (engines[0].digest() != engines[1].digest()) return Broken("a trace has changed the ids");
  specd_trace_dump dump = {};
  SPECD_TRY(Done("specd_dump_trace", specd_dump_trace(engines[1].get(), &dump)));
  const double num_kept = static_cast<double>(sides[1].times_us.size() + kWarmUpRounds) -
                          static_cast<double>(dump.num_lost);
  const double bytes = static_cast<double>(BytesOfTrace(folder->path())) / num_kept / shape.batch;
  const Summary base = Summarise(sides[0].times_us);
  const Summary traced = Summarise(sides[1].times_us);
  for (size_t i = 0; i < sides[0].times_us.size(); ++i) {
    sides[1].times_us[i] -= sides[0].times_us[i];
  }
  const Summary added = Summarise(sides[1].times_us);
  const double percent = 100 * added.median / base.median;
  out->Print(Line()
                 .Count("batch", shape.batch, 5)
                 .Count("draft", shape.draft, 5)
                 .Count("vocab", shape.vocab_size, 7)
                 .Number("plain us", 9, 1, base.median)
                 .Number("traced us", 9, 1, traced.median)
                 .Number("added us", 9, 1, added.median)
                 .Number("added %", 7, 2, percent)
                 .Target({.measured = percent,
                          .bound = shape.batch == kGoalBatch ? kAddedMax : 0,
                          .unit = "percent"})
                 .Number("bytes", 6, 0, bytes)
                 .Count("pairs", base.num_samples, 6)
                 .Count("lost", static_cast<int64_t>(dump.num_lost), 5)
                 .Load(load));
  return absl::OkStatus();
}

absl::Status RunTrace(const Flags& flags, Output* out) {
  out->Caption("added: of neighbouring rounds; bytes: of a sequence and round");
  for (const int32_t batch : flags.Numbers("batch")) {
    out->Show(fmt::format("{} sequences", batch));
    SPECD_TRY(Measure({.batch = static_cast<uint32_t>(batch),
                       .draft = static_cast<uint32_t>(flags.Number("draft")),
                       .vocab_size = static_cast<uint32_t>(flags.Number("vocab"))},
                      flags.Real("seconds"), out));
  }
  return absl::OkStatus();
}

}  // namespace

Suite TraceCommand() {
  return {.name = "trace",
          .summary = "rounds of an engine with a trace beside rounds without",
          .flags = {Flag::Seconds("10", "2"),
                    Flag::Wholes("batch", "sequences of a round", {1, 4096}, "1,8,32", "1,32"),
                    Flag::Whole("vocab", "the vocabulary's size", {1, kVocabSizeMax}, "128256"),
                    Flag::Whole("draft", "draft tokens of a sequence", {1, 64}, "5")},
          .run = &RunTrace};
}

}  // namespace specd::bench
