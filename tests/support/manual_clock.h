// A Clock that stands still until a test moves it, so that a time in a result can be stated
// exactly. Any thread may move it or read it.
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
