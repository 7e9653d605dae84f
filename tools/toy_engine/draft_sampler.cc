#include "tools/toy_engine/draft_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace specd::toy {

int32_t ArgMax(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

int32_t DraftSampler::Draw(std::span<const float> row, double temperature) {
  const double top = row[ArgMax(row)];
  std::vector<double> cumulative(row.size());
  double mass = 0.0;
  for (size_t i = 0; i < row.size(); ++i) {
    mass += std::exp((row[i] - top) / temperature);
    cumulative[i] = mass;
  }
  // 53 bits of the generator, by hand: std::uniform_real_distribution differs between libraries.
  const double coin = static_cast<double>(generator_() >> 11) * 0x1.0p-53 * mass;
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), coin);
  // Rounding may place the coin at the very end. The last id with mass is right then.
  const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), mass);
  return static_cast<int32_t>(std::min(drawn, last) - cumulative.begin());
}

}  // namespace specd::toy
