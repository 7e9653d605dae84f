// ManualClock is a Clock that only a test moves, so a test can state a time in a result exactly.
// Any thread may move it or read it.
#pragma once

#include <atomic>

#include "daemon/base/clock.h"

namespace specd {

class ManualClock : public Clock {
 public:
  int64_t NowNs() override { return now_ns_.load(); }
  void AdvanceNs(int64_t ns) { now_ns_.fetch_add(ns); }

 private:
  std::atomic<int64_t> now_ns_{1};
};

}  // namespace specd
