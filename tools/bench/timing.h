// TakeTurns is the loop that every suite times with, and Summarise makes a Summary of its samples.
//
// The sides of a comparison take turns, so that a disturbance of the machine disturbs all of them.
// Functions; they run on the calling thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/machine.h"

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

// One side of a comparison. A turn appends its times.
using Times = std::vector<double>;
struct Side {
  std::function<absl::Status(Times* times_us)> turn;
  Times times_us = {};
};

// Runs `warm_up` turns of each side, whose times are dropped, and then turns as Repeat does. The
// sides are first in turn. Returns the load of other processes meanwhile.
absl::StatusOr<ForeignLoad> TakeTurns(const TimingBounds& bounds, size_t warm_up,
                                      std::vector<Side>* sides);

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
