#include "tools/bench/timing.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/check.h"

namespace specd::bench {

absl::Status Repeat(const TimingBounds& bounds,
                    absl::FunctionRef<absl::Status(size_t index)> step) {
  const SteadyClock::time_point end =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                               std::chrono::duration<double>(bounds.seconds));
  for (size_t i = 0; i < bounds.least || (i < bounds.most && SteadyClock::now() < end); ++i) {
    if (absl::Status status = step(i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Summary Summarise(std::vector<double> values) {
  SPECD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  // The smallest value that this share of all values does not exceed.
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {.median = at(0.5),
          .p10 = at(0.1),
          .p90 = at(0.9),
          .p99 = at(0.99),
          .max = values.back(),
          .num_samples = static_cast<int64_t>(values.size())};
}

}  // namespace specd::bench
