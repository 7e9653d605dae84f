// Eventually waits for another thread's work in a test. The 30 s only bound the time in which
// broken code fails.
#pragma once

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace specd {

template <class Condition>
bool Eventually(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace specd
