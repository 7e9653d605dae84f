// Clock gives the time to everything in the daemon that needs it.
//
// Time enters only here, so a test can hold it still. Times are nanoseconds of CLOCK_MONOTONIC,
// which both ends of a session share on one machine.
#pragma once

#include <cstdint>

namespace specd {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;

  // The machine's clock; safe from any thread.
  static Clock* Real();
};

}  // namespace specd
