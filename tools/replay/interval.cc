#include "tools/replay/interval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/check.h"

namespace specd::replay {

Interval Wilson(uint64_t successes, uint64_t trials) {
  if (trials == 0) return {0, 1};
  const double n = trials;
  const double p = static_cast<double>(successes) / n;
  const double z2 = kNormal95 * kNormal95;
  const double centre = p + z2 / (2 * n);
  const double half = kNormal95 * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  const double scale = 1 + z2 / n;
  return {std::max(0.0, (centre - half) / scale), std::min(1.0, (centre + half) / scale)};
}

double Student95(uint64_t degrees) {
  if (degrees == 0) return std::numeric_limits<double>::infinity();
  if (degrees == 1) return 12.706204736;
  if (degrees == 2) return 4.302652730;
  // The expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5).
  const double v = degrees;
  const double z = kNormal95;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  const double z9 = z7 * z * z;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v) +
         (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * v * v * v * v);
}

Mean ClusteredMean(std::span<const double> values, std::span<const uint32_t> groups) {
  SPECD_CHECK(values.size() == groups.size());
  if (values.empty()) return {0, std::numeric_limits<double>::infinity()};
  const uint32_t num_groups = *std::max_element(groups.begin(), groups.end()) + 1;
  std::vector<double> sums(num_groups, 0.0);
  std::vector<double> counts(num_groups, 0.0);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sums[groups[i]] += values[i];
    counts[groups[i]] += 1;
    sum += values[i];
  }
  const double n = values.size();
  Mean result{sum / n, std::numeric_limits<double>::infinity()};
  double squares = 0;
  uint64_t used = 0;
  for (uint32_t g = 0; g < num_groups; ++g) {
    if (counts[g] == 0) continue;
    ++used;
    const double rest = sums[g] - counts[g] * result.mean;
    squares += rest * rest;
  }
  if (used < 2) return result;
  const double m = used;
  result.half_width = Student95(used - 1) * std::sqrt(squares * m / (m - 1)) / n;
  return result;
}

}  // namespace specd::replay
