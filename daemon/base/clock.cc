#include "daemon/base/clock.h"

#include <ctime>

namespace specd {

Clock* Clock::Real() {
  class RealClock : public Clock {
   public:
    int64_t NowNs() override {
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
    }
  };
  static RealClock clock;
  return &clock;
}

}  // namespace specd
