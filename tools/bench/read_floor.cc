#include "tools/bench/read_floor.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#include "absl/cleanup/cleanup.h"
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
  for (const MemorySpan& span : spans) total += span.size();
  constexpr size_t kLine = 64;
  const auto count = static_cast<size_t>(num_parts);
  const size_t share = ((total + count - 1) / count + kLine - 1) / kLine * kLine;
  std::vector<std::vector<MemorySpan>> parts(count);
  size_t part = 0;
  size_t room = share;
  for (MemorySpan span : spans) {
    while (!span.empty()) {
      if (room == 0) {
        ++part;
        room = share;
      }
      const size_t taken = std::min(room, span.size());
      parts[part].push_back(span.first(taken));
      span = span.subspan(taken);
      room -= taken;
    }
  }
  return parts;
}

double TimeRead(const std::vector<std::vector<MemorySpan>>& parts) {
  std::atomic<uint64_t> sink = 0;  // keeps the compiler from dropping the reads
  const auto read = [&](const std::vector<MemorySpan>& part) {
    uint64_t sum = 0;
    for (const MemorySpan span : part) sum ^= Fold(span.data(), span.size());
    sink.fetch_xor(sum, std::memory_order_relaxed);
  };
  // `ready` and `done` count workers. `started` is 1 when the clock runs.
  std::atomic<uint32_t> ready = 0;
  std::atomic<uint32_t> started = 0;
  std::atomic<uint32_t> done = 0;
  const auto num_workers = static_cast<uint32_t>(parts.size()) - 1;
  std::vector<std::jthread> workers;
  // A thread that cannot be made must not leave the others waiting.
  const absl::Cleanup release = [&started] { started = 1; };
  for (uint32_t i = 1; i <= num_workers; ++i) {
    workers.emplace_back([&, i] {
      ready.fetch_add(1, std::memory_order_relaxed);
      AwaitValue(started, 1);
      read(parts[i]);
      done.fetch_add(1, std::memory_order_release);
    });
  }
  AwaitValue(ready, num_workers);
  const SteadyClock::time_point start = SteadyClock::now();
  started.store(1, std::memory_order_relaxed);
  read(parts[0]);
  AwaitValue(done, num_workers);
  return MicrosSince(start);
}

}  // namespace specd::bench
