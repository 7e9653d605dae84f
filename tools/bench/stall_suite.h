// StallSuite measures the rounds and requests of ten small engines, alone and beside a neighbour
// that takes what it can get, for `specd-bench stall`.
//
// The cases take turns in short slices, so that a disturbance of the machine disturbs all of them.
// The suite runs on the calling thread, beside a verify thread and a thread for each small engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"
#include "tools/bench/stall_scene.h"

namespace specd::bench {

struct StallMeasurement {
  std::string_view case_name;  // of kStallCases
  int32_t threads = 0;
  Summary round_us = {};
  // Ratios to the same work without a neighbour; 0 for that case itself.
  double ratio = 0;
  double ratio_p99 = 0;
  double ratio_max = 0;
  ForeignLoad load = {};
};

struct StallCase {
  std::string_view name;
  std::string_view meaning;
  SmallWork work;
  std::optional<Neighbour> neighbour;  // none: the base of the cases with this work
};

inline constexpr StallCase kStallCases[] = {
    {"alone", "rounds of ten small engines", SmallWork::kRounds, std::nullopt},
    {"monster",
     "the same beside an engine whose round has 640 sequences of 65 rows with 2^20 elements",
     SmallWork::kRounds, Neighbour::kMonster},
    {"masks", "the same beside an engine that needs 65 new masks in each round", SmallWork::kRounds,
     Neighbour::kMasks},
    {"requests", "openings with short prompts, and four rounds of each, of ten small engines",
     SmallWork::kRequests, std::nullopt},
    {"openings", "the same beside an engine whose constraints use up the budget of a compile",
     SmallWork::kRequests, Neighbour::kOpenings},
};

class StallSuite {
 public:
  struct Options {
    double seconds = 1;                        // of each case
    std::vector<std::string_view> cases = {};  // names; empty: all. Bases are measured with them
    int32_t threads = 1;                       // of each session's rounds
    std::function<void(std::string_view)> on_progress;
  };

  explicit StallSuite(Options options) : options_(std::move(options)) {}

  absl::StatusOr<std::vector<StallMeasurement>> Run();

 private:
  const Options options_;
};

}  // namespace specd::bench
