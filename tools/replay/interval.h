// Wilson and MeanInterval give 95 % confidence intervals for stats and rerun.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace specd::replay {

struct Interval {
  double low = 0;
  double high = 0;
};

// The standard normal quantile of 0.975.
inline constexpr double kNormal95 = 1.959963984540054;

// The share of successes in independent trials (Wilson 1927). [0, 1] without trials.
Interval Wilson(uint64_t successes, uint64_t trials);

struct Mean {
  double mean = 0;
  double half_width = 0;  // of the interval; infinite if there are less than two groups
};

// The mean of all values and its interval, with the groups (sequences) as independent units: the
// values of one group may depend on each other. The standard error is that of a ratio of group
// sums, with Student's quantile for the number of groups. `groups[i]` is the group of values[i];
// groups are numbered from 0.
Mean ClusteredMean(std::span<const double> values, std::span<const uint32_t> groups);

// Student's quantile of 0.975 with that many degrees of freedom, within 1e-3 from 3 on.
double Student95(uint64_t degrees);

}  // namespace specd::replay
