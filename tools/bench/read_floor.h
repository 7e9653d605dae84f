// ReadFloor times a read of some memory that does nothing with the data. Kernels are compared with
// this bound.
//
// Its threads wake before the clock starts and sleep again after it has stopped. They neither pay
// for waking nor disturb the work that is measured in between. One thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace specd::bench {

struct MemorySpan {
  const void* data = nullptr;
  size_t size_bytes = 0;
};

// Splits the spans into parts of about equal size, one for each thread.
std::vector<std::vector<MemorySpan>> SplitEvenly(const std::vector<MemorySpan>& spans,
                                                 int32_t num_parts);

class ReadFloor {
 public:
  using Duration = std::chrono::steady_clock::duration;

  explicit ReadFloor(int32_t num_threads);
  ~ReadFloor();
  ReadFloor(const ReadFloor&) = delete;
  ReadFloor& operator=(const ReadFloor&) = delete;

  // REQUIRES: parts.size() is the number of threads.
  Duration Measure(const std::vector<std::vector<MemorySpan>>& parts);

 private:
  void Work(size_t part);
  void Read(size_t part);

  const std::vector<std::vector<MemorySpan>>* parts_ = nullptr;
  bool stopping_ = false;
  // Each measurement has a number. `woken_` wakes the workers and publishes parts_ and stopping_
  // (release; pairs with the acquire of their wait). Workers spin on `started_`, and `ready_`
  // counts the spinning workers. `done_` (release; pairs with the acquire in Measure) says that no
  // worker reads parts_ any more.
  std::atomic<uint32_t> woken_ = 0;
  std::atomic<uint32_t> started_ = 0;
  std::atomic<uint32_t> ready_ = 0;
  std::atomic<uint32_t> done_ = 0;
  std::atomic<uint64_t> sink_ = 0;  // keeps the compiler from dropping the reads
  std::vector<std::thread> workers_;
};

}  // namespace specd::bench
