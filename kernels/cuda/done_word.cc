#include "kernels/cuda/done_word.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace specd {

namespace {

// The looks at a missing word before the host asks the driver whether the device still works: some
// 20 us on x86. A round of usual length therefore needs no such question. After the question, other
// threads get their turn.
constexpr int kLooksPerCheck = 1024;
// After these checks (160 us and more), rounds of 64 sequences are done (docs/BENCHMARKS.md has the
// targets). A longer round waits for a forward of the engine's on its CUDA stream. A core that only
// polls is then a core that the engine lacks.
constexpr int kChecksBeforeSleep = 8;
// From then on, each sleep is followed by a check and a look. The delay of a word is at most an
// eighth of the time already waited, and never more than the longest sleep. Linux adds its slack to
// every sleep (50 us by default).
constexpr useconds_t kSleepMinUs = 5;
constexpr useconds_t kSleepMaxUs = 50;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // a pause; `yield` does nothing on most of these processors
#endif
}

}  // namespace

void PublishWord(uint64_t value, uint64_t* word) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}
uint64_t LookAtWord(uint64_t* word) {
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
}

GpuResult DoneWord::Allocate(GpuDriver* driver) {
  driver_ = driver;
  num_awaited_ = 0;
  GpuResult result = word_.Allocate(driver, sizeof(uint64_t));
  if (result.ok()) result = first_turn_.Allocate(driver, sizeof(StagedTurn));
  if (result.ok()) result = turn_.Allocate(driver, sizeof(StagedTurn));
  if (!result.ok()) return result;
  plan_ = {};
  plan_.done = new (word_.get()) uint64_t(0);
  plan_.turn = reinterpret_cast<StagedTurn*>(turn_.get());
  // A turn without a round would not be counted.
  const auto* const first = new (first_turn_.get()) StagedTurn{.size_bytes = 1};
  result = driver->ToDevice(plan_.turn, first, sizeof(*first));
  // The caller may free the memory next, so no copy may still use it.
  return result.ok() ? driver->Synchronize() : result;
}

GpuResult DoneWord::LaunchEnd() { return driver_->LaunchEndStaged(plan_); }

GpuResult DoneWord::Await() {
  const uint64_t number = ++num_awaited_;
  for (int checks = 0; checks < kChecksBeforeSleep; ++checks) {
    for (int looks = 0; looks < kLooksPerCheck; ++looks) {
      if (LookAtWord(plan_.done) >= number) return GpuResult::Ok();
      Pause();
    }
    const GpuResult result = driver_->Check();
    if (!result.ok()) return result;
    sched_yield();
  }
  for (useconds_t sleep_us = kSleepMinUs; LookAtWord(plan_.done) < number;
       sleep_us = std::min(sleep_us + sleep_us / 8 + 1, kSleepMaxUs)) {
    usleep(sleep_us);  // a signal may cut this sleep short, which does no harm
    const GpuResult result = driver_->Check();
    if (!result.ok()) return result;
  }
  return GpuResult::Ok();
}

}  // namespace specd
