// TimePairs is the loop that every suite times with.
//
// A function; it runs on the calling thread.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/measurement.h"

namespace specd::bench {

struct TimingBounds {
  double seconds = 1;
  size_t least = 5;  // pairs, however long they take: enough for a median
  size_t most = 0;   // pairs that are kept if they are very short
};

struct TimedPair {
  double case_us = 0;
  double base_us = 0;
};

// Times one pair after another until the seconds are over, or until a pair fails.
absl::StatusOr<PairedTimes> TimePairs(const TimingBounds& bounds,
                                      absl::FunctionRef<absl::StatusOr<TimedPair>()> time);

}  // namespace specd::bench
