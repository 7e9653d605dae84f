// Eventually: waits for what another thread does. 30 s only bound how long broken code takes to
// fail.
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
