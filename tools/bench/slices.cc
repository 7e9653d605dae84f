#include "tools/bench/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace specd::bench {
namespace {

// Adds the ratios of the times to those of the base, and the load.
void AddRatios(const Summary& times, const Summary* base, const ForeignLoad& load, Line* line) {
  const auto add = [&](std::string_view title, std::string_view key, double value, double of) {
    line->CellIf(base != nullptr, title, std::max<size_t>(title.size(), 6),
                 fmt::format("{:.2f}", value / of));
    if (base != nullptr) line->Json(key, value / of);
  };
  const Summary none = {.median = 1, .p99 = 1, .max = 1};
  const Summary& of = base == nullptr ? none : *base;
  add("ratio", "ratio", times.median, of.median);
  add("ratio p99", "ratio_p99", times.p99, of.p99);
  add("ratio max", "ratio_max", times.max, of.max);
  line->Load(load);
}

}  // namespace

SequenceParams Greedy() {
  SequenceParams params;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.temperature = 0;
  return params;
}

SessionLimits LimitsOf(uint32_t num_sequences, uint32_t max_draft) {
  return {.vocab_size = kSmallVocabSize,
          .max_batch = 1,
          .max_sequences = num_sequences,
          .max_draft = max_draft,
          .ring_depth = 1,
          .max_scores = 1};
}

absl::Status TakeTurns(std::vector<Samples>* samples, Output* out,
                       const std::function<absl::Status(Samples* of)>& run_slice) {
  for (int slice = 0; slice < kSlices; ++slice) {
    out->Show(fmt::format("[{}/{}]", slice + 1, kSlices));
    for (Samples& each : *samples) {
      if (absl::Status status = run_slice(&each); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void PrintAll(const std::vector<Samples>& samples, const ForeignLoad& load, Output* out,
              const std::function<Line(const Samples& of, const Summary& times)>& begin) {
  std::vector<Summary> summaries;
  for (const Samples& each : samples) summaries.push_back(Summarise(each.times_us));
  for (size_t i = 0; i < samples.size(); ++i) {
    const Summary* base = nullptr;
    for (size_t k = 0; k < samples.size(); ++k) {
      if (samples[i].base == samples[k].index) base = &summaries[k];
    }
    Line line = begin(samples[i], summaries[i]);
    AddRatios(summaries[i], base, load, &line);
    out->Print(line);
  }
}

}  // namespace specd::bench
