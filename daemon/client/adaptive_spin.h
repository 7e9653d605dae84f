// AdaptiveSpin says how long a wait for an answer looks at memory before it sleeps.
//
// An answer that a waiter looks for is seen in a tenth of a microsecond; a waiter that sleeps is
// woken tens of microseconds late. A wait therefore looks for twice as long as the last waits took,
// up to a bound. If the last waits took longer than the bound, looking would be in vain. One
// thread.
//
//   const int64_t spin_ns = spin.NextNs();
//   ...  // looks for spin_ns, then sleeps
//   spin.Took(waited_ns);
#pragma once

#include <algorithm>
#include <cstdint>

namespace specd {

class AdaptiveSpin {
 public:
  // A bound of 0: waits sleep at once.
  explicit AdaptiveSpin(int64_t max_ns) : max_ns_(max_ns), expected_ns_(max_ns / 2) {}

  int64_t NextNs() const {
    return expected_ns_ > max_ns_ ? 0 : std::min(max_ns_, 2 * expected_ns_ + kLeastNs);
  }
  // The wait that just ended took so long. One that was much longer than the others is forgotten
  // within a few waits.
  void Took(int64_t ns) {
    expected_ns_ += (std::clamp(ns, int64_t{0}, kLongestNs) - expected_ns_) / 4;
  }

 private:
  static constexpr int64_t kLeastNs = 20'000;         // a wake costs as much (estimate)
  static constexpr int64_t kLongestNs = 100'000'000;  // longer waits count as this

  const int64_t max_ns_;
  int64_t expected_ns_;
};

}  // namespace specd
