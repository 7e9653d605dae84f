#include "tools/bench/timing.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/check.h"
#include "tools/bench/try.h"

namespace specd::bench {

absl::Status Repeat(const TimingBounds& bounds,
                    absl::FunctionRef<absl::Status(size_t index)> step) {
  const SteadyClock::time_point start = SteadyClock::now();
  for (size_t i = 0;
       i < bounds.least || (i < bounds.most && MicrosSince(start) < 1e6 * bounds.seconds); ++i) {
    SPECD_TRY(step(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForeignLoad> TakeTurns(const TimingBounds& bounds, size_t warm_up,
                                      std::vector<Side>* sides) {
  const auto turn = [&](size_t index) -> absl::Status {
    for (size_t i = 0; i < sides->size(); ++i) {
      Side& side = (*sides)[(index + i) % sides->size()];
      SPECD_TRY(side.turn(&side.times_us));
    }
    return absl::OkStatus();
  };
  for (size_t i = 0; i < warm_up; ++i) SPECD_TRY(turn(i));
  for (Side& side : *sides) side.times_us.clear();
  const LoadMeter meter;
  SPECD_TRY(Repeat(bounds, turn));
  return meter.Read();
}

Summary Summarise(std::vector<double> values) {
  SPECD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  // The smallest value that this share of all values does not exceed.
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {at(0.5), at(0.1), at(0.9), at(0.99), values.back(), static_cast<int64_t>(values.size())};
}

}  // namespace specd::bench
