#include "tools/bench/read_floor.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "tools/bench/timing.h"

// One clone for each vector width, chosen when the program is loaded.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SPECD_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SPECD_BENCH_CLONES
#endif

namespace specd::bench {
namespace {

using Words = uint64_t __attribute__((vector_size(64)));

// Folds whole blocks of eight cache lines, each into a register of its own. Memory limits the loop
// long before the arithmetic does.
SPECD_BENCH_CLONES uint64_t Fold(const char* data, size_t size_bytes) {
  constexpr size_t kLines = 8;
  Words sums[kLines] = {};
  const size_t block_bytes = sizeof(sums);
  const size_t num_blocks = size_bytes / block_bytes;
  for (size_t block = 0; block < num_blocks; ++block) {
    const char* line = data + block * block_bytes;
#pragma GCC unroll 8
    for (size_t i = 0; i < kLines; ++i, line += sizeof(Words)) {
      Words words;
      __builtin_memcpy(&words, line, sizeof(words));
      sums[i] ^= words;
    }
  }
  uint64_t sum = 0;
  for (size_t at = num_blocks * block_bytes; at < size_bytes; ++at) {
    sum += static_cast<unsigned char>(data[at]);
  }
#pragma GCC unroll 8
  for (size_t i = 1; i < kLines; ++i) sums[0] ^= sums[i];
  for (size_t i = 0; i < sizeof(Words) / sizeof(uint64_t); ++i) sum ^= sums[0][i];
  return sum;
}

// A thread that gives up its CPU at once would find a worker on it and have to wait. Yielding is
// right only with more threads than CPUs.
void AwaitValue(const std::atomic<uint32_t>& word, uint32_t value) {
  // Some hundred microseconds: longer than any worker takes to wake.
  constexpr int kNumSpins = 1 << 18;
  for (int i = 0; word.load(std::memory_order_acquire) != value; ++i) {
    if (i >= kNumSpins) std::this_thread::yield();
  }
}

}  // namespace

std::vector<std::vector<MemorySpan>> SplitEvenly(const std::vector<MemorySpan>& spans,
                                                 int32_t num_parts) {
  size_t total = 0;
  for (const MemorySpan& span : spans) total += span.size_bytes;
  constexpr size_t kLine = 64;
  const auto count = static_cast<size_t>(num_parts);
  const size_t share = ((total + count - 1) / count + kLine - 1) / kLine * kLine;
  std::vector<std::vector<MemorySpan>> parts(count);
  size_t part = 0;
  size_t room = share;
  for (MemorySpan span : spans) {
    while (span.size_bytes > 0) {
      if (room == 0) {
        ++part;
        room = share;
      }
      const size_t taken = std::min(room, span.size_bytes);
      parts[part].push_back({span.data, taken});
      span = {static_cast<const char*>(span.data) + taken, span.size_bytes - taken};
      room -= taken;
    }
  }
  return parts;
}

ReadFloor::ReadFloor(int32_t num_threads) {
  for (int32_t i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this, i] { Work(static_cast<size_t>(i)); });
  }
}

ReadFloor::~ReadFloor() {
  stopping_ = true;
  woken_.fetch_add(1, std::memory_order_release);
  woken_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

ReadFloor::Duration ReadFloor::Measure(const std::vector<std::vector<MemorySpan>>& parts) {
  SPECD_CHECK(parts.size() == workers_.size() + 1);
  const auto num_workers = static_cast<uint32_t>(workers_.size());
  parts_ = &parts;
  ready_.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t number = woken_.fetch_add(1, std::memory_order_release) + 1;
  woken_.notify_all();
  AwaitValue(ready_, num_workers);
  const SteadyClock::time_point start = SteadyClock::now();
  started_.store(number, std::memory_order_relaxed);
  Read(0);
  AwaitValue(done_, num_workers);
  return SteadyClock::now() - start;
}

void ReadFloor::Work(size_t part) {
  for (uint32_t number = 1;; ++number) {
    woken_.wait(number - 1, std::memory_order_acquire);
    if (stopping_) return;
    ready_.fetch_add(1, std::memory_order_relaxed);
    AwaitValue(started_, number);
    Read(part);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void ReadFloor::Read(size_t part) {
  uint64_t sum = 0;
  for (const MemorySpan& span : (*parts_)[part]) {
    sum ^= Fold(static_cast<const char*>(span.data), span.size_bytes);
  }
  sink_.fetch_xor(sum, std::memory_order_relaxed);
}

}  // namespace specd::bench
