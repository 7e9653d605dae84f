#include "tools/bench/timing.h"

#include <chrono>

namespace specd::bench {

absl::StatusOr<PairedTimes> TimePairs(const TimingBounds& bounds,
                                      absl::FunctionRef<absl::StatusOr<TimedPair>()> time) {
  using Clock = std::chrono::steady_clock;
  PairedTimes times;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(bounds.seconds));
  while (times.case_us.size() < bounds.least ||
         (Clock::now() < end && times.case_us.size() < bounds.most)) {
    const absl::StatusOr<TimedPair> pair = time();
    if (!pair.ok()) return pair.status();
    times.case_us.push_back(pair->case_us);
    times.base_us.push_back(pair->base_us);
  }
  return times;
}

}  // namespace specd::bench
