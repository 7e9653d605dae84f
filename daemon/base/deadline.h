// Deadline is the time by which a call returns, however often it looks again. A value.
//
//   const Deadline deadline(timeout_ms);  // negative: never
//   while (!deadline.HasPassed()) Look();
#pragma once

#include <cstdint>

#include "daemon/base/clock.h"

namespace specd {

class Deadline {
 public:
  explicit Deadline(int timeout_ms)
      : end_ns_(timeout_ms < 0 ? INT64_MAX
                               : Clock::Real()->NowNs() + int64_t{timeout_ms} * 1'000'000) {}
  static Deadline Never() { return Deadline(-1); }
  bool HasPassed() const { return end_ns_ != INT64_MAX && Clock::Real()->NowNs() >= end_ns_; }

 private:
  int64_t end_ns_;
};

}  // namespace specd
