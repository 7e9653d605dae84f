// TimeBins groups what happened by time, for stats and doctor: intervals of equal length, at most
// a given number. If the time goes on, the intervals double.
//
// Group has Add(const Group&). One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specd::replay {

template <class Group>
class TimeBins {
 public:
  explicit TimeBins(int64_t bins_max) : bins_max_(bins_max) {}

  Group* At(int64_t time_ns) {
    if (bins_.empty()) first_ns_ = time_ns;
    const int64_t since = std::max<int64_t>(time_ns - first_ns_, 0);
    while (since / width_ns_ >= bins_max_) Double();
    const size_t index = since / width_ns_;
    if (index >= bins_.size()) bins_.resize(index + 1);
    return &bins_[index];
  }

  const std::vector<Group>& groups() const { return bins_; }
  // The start of a group, counted from the first time.
  double StartSeconds(size_t index) const {
    return static_cast<double>(width_ns_) * static_cast<double>(index) / 1e9;
  }

 private:
  void Double() {
    width_ns_ *= 2;
    for (size_t i = 0; 2 * i < bins_.size(); ++i) {
      Group sum = bins_[2 * i];
      if (2 * i + 1 < bins_.size()) sum.Add(bins_[2 * i + 1]);
      bins_[i] = sum;
    }
    bins_.resize((bins_.size() + 1) / 2);
  }

  const int64_t bins_max_;
  int64_t first_ns_ = 0;
  int64_t width_ns_ = 10'000;
  std::vector<Group> bins_;
};

}  // namespace specd::replay
