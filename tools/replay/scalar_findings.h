// ScalarFindings is what the checks of recorded numbers found.
//
// CheckScalars makes it for chains, and CheckTreeScalars for trees. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace specd::replay {

struct ScalarFindings {
  uint32_t num_checked = 0;              // comparisons that were made
  std::vector<std::string> differences;  // as sentences
};

}  // namespace specd::replay
