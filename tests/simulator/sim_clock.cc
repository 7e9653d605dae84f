#include "tests/simulator/sim_clock.h"

#include <sched.h>

#include <thread>

#include "absl/base/config.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace specd {
namespace {

const std::thread::id main_thread = std::this_thread::get_id();

}  // namespace

Clock* Clock::Real() { return &sim::SimClock::OfProcess(); }

namespace sim {

SimClock& SimClock::OfProcess() {
  static SimClock clock;
  return clock;
}

}  // namespace sim
}  // namespace specd

// Abseil declares its own weak, so that a program may sleep in another way.
extern "C" void ABSL_INTERNAL_C_SYMBOL(AbslInternalSleepFor)(absl::Duration duration) {
  if (std::this_thread::get_id() != specd::main_thread) {
    sched_yield();
    return;
  }
  specd::sim::SimClock& clock = specd::sim::SimClock::OfProcess();
  clock.AdvanceNs(absl::ToInt64Nanoseconds(duration));
  clock.sleep();
}
