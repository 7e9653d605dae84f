// TakeTurns and PrintAll are what the suites `opening` and `stall` share: cases that take turns in
// short slices, so that a disturbance of the machine disturbs all of them, and their ratios.
//
// Functions; they run on the calling thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/session/session.h"
#include "tools/bench/output.h"

namespace specd::bench {

inline constexpr int kSlices = 5;  // of each case
inline constexpr uint32_t kSmallVocabSize = 32000;
inline constexpr TokenId kBest = 7;  // the id with the highest logit, and every draft token

SequenceParams Greedy();
// Of an engine with rounds of one sequence over the small vocabulary.
SessionLimits LimitsOf(uint32_t num_sequences, uint32_t max_draft);

// The times of a case, of its neighbour's openings, and the case that it is compared with.
struct Samples {
  size_t index = 0;  // of the case
  std::optional<size_t> base = {};
  std::vector<double> times_us = {};
  std::vector<double> openings_us = {};
};

absl::Status TakeTurns(std::vector<Samples>* samples, Output* out,
                       const std::function<absl::Status(Samples* of)>& run_slice);

// Begins the line of each case with `begin`, adds ratios and load, and prints it.
void PrintAll(const std::vector<Samples>& samples, const ForeignLoad& load, Output* out,
              const std::function<Line(const Samples& of, const Summary& times)>& begin);

}  // namespace specd::bench
