// BarChart draws shares with their intervals as an SVG, for `specd-replay stats --format=svg`.
//
// The colours are readable on a light and on a dark background. Pure function.
#pragma once

#include <string>
#include <vector>

#include "tools/replay/interval.h"

namespace specd::replay {

struct Bar {
  std::string label;
  double share = 0;  // 0 .. 1
  Interval interval;
  std::string note;  // such as the count
};

std::string BarChart(const std::string& title, const std::vector<Bar>& bars);

}  // namespace specd::replay
