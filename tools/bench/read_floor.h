// ReadFloor: how long it takes to read some memory and do nothing with it. The bound that kernels
// are compared with.
//
// Its threads are woken before the clock starts and sleep again after it has stopped, so that they
// neither pay for waking nor disturb what is measured in between. Used by one thread at a time.
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

// The spans split into parts of about equal size, one for each thread.
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
  // Each measurement has a number. `woken_` brings the workers out of their sleep and publishes
  // parts_ and stopping_ (release; pairs with the acquire of their wait). `started_` is what they
  // spin on; `ready_` counts those who do. `done_` (release; pairs with the acquire in Measure)
  // says that nobody looks at parts_ any more.
  std::atomic<uint32_t> woken_ = 0;
  std::atomic<uint32_t> started_ = 0;
  std::atomic<uint32_t> ready_ = 0;
  std::atomic<uint32_t> done_ = 0;
  std::atomic<uint64_t> sink_ = 0;  // keeps the compiler from dropping the reads
  std::vector<std::thread> workers_;
};

}  // namespace specd::bench
