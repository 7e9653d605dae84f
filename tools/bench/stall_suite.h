// StallSuite measures the rounds of ten small engines beside an engine with a round of a minute,
// for `specd-bench stall`.
//
// The cases take turns in short slices, so that a disturbance of the machine disturbs all of them.
// The suite runs on the calling thread, beside a verify thread and a thread for each small engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"

namespace specd::bench {

struct StallMeasurement {
  std::string_view case_name;  // "alone" or "monster"
  int32_t threads = 0;
  Summary round_us = {};
  // Ratios to `alone`; 0 for that case itself.
  double ratio = 0;
  double ratio_p99 = 0;
  double ratio_max = 0;
  ForeignLoad load = {};
};

class StallSuite {
 public:
  struct Options {
    double seconds = 1;   // of each case
    int32_t threads = 1;  // of each session's rounds
    std::function<void(std::string_view)> on_progress;
  };

  explicit StallSuite(Options options) : options_(std::move(options)) {}

  absl::StatusOr<std::vector<StallMeasurement>> Run();

 private:
  const Options options_;
};

}  // namespace specd::bench
