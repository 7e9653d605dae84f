// AwakeTime is the time in which a thread has looked, for watches that give others a term.
//
// A stopped process, a paused machine and a starved thread do not look for a while. Then their next
// look finds terms that have run out, although the peers could not speak or were not heard. A
// thread's own stall must not count against its peers. A step of the clock that is longer than
// `step_max_ns` therefore counts as `step_max_ns`. Choose a quarter of the term, and more than the
// thread's usual step. After a stall of any length, a peer then has most of a term left.
//
//   AwakeTime awake(kTermNs / 4);
//   ...                                      // in every step of the thread
//   awake.Step(clock->NowNs());
//   if (awake.now_ns() - heard_ns >= kTermNs) GiveUp();
//
// One thread steps; any thread may ask.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace specd {

class AwakeTime {
 public:
  explicit AwakeTime(int64_t step_max_ns) : step_max_ns_(step_max_ns) {}
  AwakeTime(const AwakeTime&) = delete;
  AwakeTime& operator=(const AwakeTime&) = delete;

  // The first step only takes the time of the clock. Returns now_ns().
  int64_t Step(int64_t clock_ns) {
    const int64_t step_ns = has_begun_ ? std::min(clock_ns - last_ns_, step_max_ns_) : 0;
    has_begun_ = true;
    last_ns_ = clock_ns;
    now_ns_.store(now_ns() + step_ns, std::memory_order_relaxed);
    return now_ns();
  }

  // Since the first step.
  int64_t now_ns() const { return now_ns_.load(std::memory_order_relaxed); }

 private:
  const int64_t step_max_ns_;
  bool has_begun_ = false;
  int64_t last_ns_ = 0;
  std::atomic<int64_t> now_ns_{0};  // orders nothing
};

}  // namespace specd
