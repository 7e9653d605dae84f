// TestCounts compares counts with a law for tests, by Pearson's chi-square. It also gives the
// effect that a test of this many samples can see.
#pragma once

#include <cstdint>
#include <vector>

namespace specd {

struct ChiSquare {
  double statistic = 0;
  int degrees_of_freedom = 0;
  double critical = 0;        // exceeded by chance once in a million
  double visible_effect = 0;  // a total variation that the test would very probably see
  bool impossible = false;    // an id with probability 0 was counted

  bool Fits() const { return !impossible && statistic < critical; }
};

// Cells whose expected count is below 10 are merged.
ChiSquare TestCounts(const std::vector<int64_t>& counts, const std::vector<double>& probabilities);

}  // namespace specd
