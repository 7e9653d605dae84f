// Pearson's chi-square test of counts against a law, and the effect size that a test of so many
// samples can see.
#pragma once

#include <cstdint>
#include <vector>

namespace specd {

struct ChiSquare {
  double statistic = 0;
  int degrees_of_freedom = 0;
  double critical = 0;        // exceeded by chance once in a million
  double visible_effect = 0;  // total variation that would very probably be noticed
  bool impossible = false;    // something with probability 0 was counted

  bool Fits() const { return !impossible && statistic < critical; }
};

// Cells whose expected count is below 10 are put together.
ChiSquare TestCounts(const std::vector<int64_t>& counts, const std::vector<double>& probabilities);

}  // namespace specd
