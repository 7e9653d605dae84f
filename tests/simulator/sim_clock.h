// SimClock is the time of a simulated run: the simulator moves it, and a sleep moves it too.
//
// The simulator links sim_clock.cc in place of daemon/base/clock.cc, and absl::SleepFor in its
// thread calls `sleep`. So libspecd waits for a daemon without waiting.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/base/clock.h"

namespace specd::sim {

class SimClock : public Clock {
 public:
  static SimClock& OfProcess();

  int64_t NowNs() override { return now_ns_; }
  void AdvanceNs(int64_t ns) { now_ns_ += ns; }

  // Code of the product sleeps: whoever does not may work.
  std::function<void()> sleep = [] {};

 private:
  int64_t now_ns_ = 1'000'000'000;
};

}  // namespace specd::sim
