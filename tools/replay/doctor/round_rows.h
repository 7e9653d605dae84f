// RoundRows holds p and q of every place of a round whose rows were recorded, for RowTests.
//
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/place_rows.h"
#include "tools/replay/round_rebuilder.h"

namespace specd::replay {

class RoundRows {
 public:
  // Reads the rows of all tasks of the batch. REQUIRES: the rebuilder's batch has run.
  absl::Status Read(const RoundRebuilder& rebuilder, PlaceRows* rows);

  // Empty: the row is bad or was not recorded, or there is no such task or place.
  std::span<const float> P(int64_t task, int64_t place) const { return At(p_, task, place); }
  std::span<const float> Q(int64_t task, int64_t place) const { return At(q_, task, place); }
  // Of each place of a task the sum of (P p - q)+; below 0: not known.
  std::span<const double> Residuals(size_t task) const { return residuals_[task]; }

 private:
  using Rows = std::vector<std::vector<std::vector<float>>>;  // by task and place

  // A round of many long rows is read in part: what is left out has no neighbours to compare with.
  static constexpr uint64_t kBytesMax = uint64_t{1} << 30;

  static std::span<const float> At(const Rows& rows, int64_t task, int64_t place) {
    if (task < 0 || task >= static_cast<int64_t>(rows.size())) return {};
    const auto& places = rows[task];
    if (place < 0 || place >= static_cast<int64_t>(places.size())) return {};
    return places[place];
  }

  Rows p_;
  Rows q_;
  std::vector<std::vector<double>> residuals_;
};

}  // namespace specd::replay
