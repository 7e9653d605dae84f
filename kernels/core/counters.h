// Counters and LiveCounters hold the sums of counter_list.inc for a session, its replies and
// totals.
//
// LiveCounters has one writer at a time: the verifier of a session, under its caller's lock. Any
// thread reads it at any time. A copy that is taken during a round may have some of the round's
// counts without the others.
#pragma once

#include <atomic>
#include <cstdint>

namespace specd {

// Plain numbers, for one thread.
struct Counters {
#define SPECD_COUNTER(name, metric, meaning) uint64_t name = 0;
#include "kernels/core/counter_list.inc"

  Counters& operator+=(const Counters& other) {
#define SPECD_COUNTER(name, metric, meaning) name += other.name;
#include "kernels/core/counter_list.inc"
    return *this;
  }
  bool operator==(const Counters&) const = default;
};

// A sum with one writer. The atomic orders nothing: it keeps a reader from seeing half a number.
class Counter {
 public:
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  void operator+=(uint64_t count) { value_.store(value() + count, std::memory_order_relaxed); }
  void operator++() { *this += 1; }

 private:
  std::atomic<uint64_t> value_{0};
};

struct LiveCounters {
#define SPECD_COUNTER(name, metric, meaning) Counter name;
#include "kernels/core/counter_list.inc"

  Counters Read() const {
    Counters sums;
#define SPECD_COUNTER(name, metric, meaning) sums.name = name.value();
#include "kernels/core/counter_list.inc"
    return sums;
  }
};

}  // namespace specd
