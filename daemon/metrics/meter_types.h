// The types of metrics: what a row of metric_list.inc may be, as values in memory that others read.
//
// Each object has one writer at a time; any thread or process reads it at any time. The stores are
// relaxed and order nothing: a reader may see one value of a round without the others.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ipc/counters/counter_layout.h"
#include "kernels/core/counters.h"
#include "kernels/core/sequence_round.h"
#include "kernels/core/types.h"

namespace specd {

// A number that rises and falls.
class Gauge {
 public:
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A gauge that is 1. Its labels are the daemon's own.
class Info : public Gauge {};

// A histogram of durations, as CounterKind::kTimes has it.
class Times {
 public:
  // A duration below 0 counts as 0: its beginning may be an engine's word.
  void Add(int64_t ns) {
    const uint64_t known = ns > 0 ? static_cast<uint64_t>(ns) : 0;
    // Bucket i takes those above kTimesFirstNs << (i - 1), up to kTimesFirstNs << i.
    const auto bucket =
        known == 0 ? 0U : static_cast<uint32_t>(std::bit_width((known - 1) / kTimesFirstNs));
    ++buckets_[bucket < kTimesBounds ? bucket : kTimesBounds];
    sum_ns_ += known;
  }

 private:
  std::array<Counter, kTimesBounds + 1> buckets_;
  Counter sum_ns_;
};
static_assert(sizeof(Times) == kTimesValues * sizeof(uint64_t));

// Counters by a number. Those that are 0 are not shown.
template <size_t kSize>
struct CounterArray {
  static constexpr size_t size() { return kSize; }
  Counter& operator[](size_t index) { return at[index]; }
  std::array<Counter, kSize> at;
};
struct PerPosition : CounterArray<kNodesMax> {};       // place in a draft
struct PerRefusal : CounterArray<kRefusalMax + 1> {};  // Refusal
struct PerReason : CounterArray<5> {};                 // FinishReason
struct PerError : CounterArray<14> {};                 // the negative of SPECD_ERROR_...

}  // namespace specd
