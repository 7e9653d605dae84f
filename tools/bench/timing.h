// Repeat is the loop that every suite times with, and Summarise makes a Summary of its samples.
//
// Functions; they run on the calling thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace specd::bench {

// The clock of every measurement; specd::Clock is the daemon's.
using SteadyClock = std::chrono::steady_clock;

inline double MicrosSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

struct TimingBounds {
  double seconds = 1;
  size_t least = 5;       // samples, however long they take: enough for a median
  size_t most = 200'000;  // samples that are kept if they are very short
};

// Calls `step` until the seconds are over and there are enough samples, or until it fails.
absl::Status Repeat(const TimingBounds& bounds, absl::FunctionRef<absl::Status(size_t index)> step);

struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  int64_t num_samples = 0;
};

// REQUIRES: at least one value.
Summary Summarise(std::vector<double> values);

}  // namespace specd::bench
