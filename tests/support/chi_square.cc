#include "tests/support/chi_square.h"

#include <cmath>

namespace specd {

namespace {

// The quantile at 1 - 1e-6 by Wilson and Hilferty's cube. From two degrees of freedom on, it is
// within 1 %. Below, it is on the safe side.
double CriticalValue(int degrees_of_freedom) {
  constexpr double kNormalQuantile = 4.7534;  // of 1 - 1e-6
  const double v = 2.0 / (9.0 * degrees_of_freedom);
  const double cube = 1 - v + kNormalQuantile * std::sqrt(v);
  return degrees_of_freedom * cube * cube * cube;
}

}  // namespace

ChiSquare TestCounts(const std::vector<int64_t>& counts, const std::vector<double>& probabilities) {
  constexpr double kSmallCell = 10;
  ChiSquare result;
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double rest_count = 0;
  double rest_expected = 0;
  int num_cells = 0;
  const auto add = [&](double count, double expected) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++num_cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (probabilities[i] == 0 && counts[i] != 0) result.impossible = true;
    if (expected >= kSmallCell) {
      add(static_cast<double>(counts[i]), expected);
    } else {
      rest_count += static_cast<double>(counts[i]);
      rest_expected += expected;
    }
  }
  if (rest_expected > 0) add(rest_count, rest_expected);
  result.degrees_of_freedom = num_cells - 1;
  if (result.degrees_of_freedom < 1) return {.critical = 1, .impossible = result.impossible};
  result.critical = CriticalValue(result.degrees_of_freedom);
  // A law at chi-square distance w^2 moves the statistic by n w^2. Twice the critical value is
  // noticed nearly always; a shift spread evenly over equal cells has total variation w / 2.
  result.visible_effect = std::sqrt(2 * result.critical / total) / 2;
  return result;
}

}  // namespace specd
