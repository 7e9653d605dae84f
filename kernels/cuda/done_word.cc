#include "kernels/cuda/done_word.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace specd {

namespace {

// Of a word that is not there yet, before the driver is asked whether the device still works: some
// 20 us on x86, so that a round of usual length asks it for nothing. Then other threads get their
// turn.
constexpr int kLooksPerCheck = 1024;
// After so many checks, there 160 us and more, rounds of 64 sequences are done (docs/BENCHMARKS.md
// has the targets). What takes longer stands behind a forward of the engine's on its stream, and a
// core that does nothing but look is one that the engine is without.
constexpr int kChecksBeforeSleep = 8;
// From then on there is a check and a look after each sleep. A word is seen late by an eighth of
// what has been waited already at most, never by more than the longest sleep, and by what Linux
// adds to every sleep (50 us where nobody has set another slack).
constexpr useconds_t kSleepMinUs = 5;
constexpr useconds_t kSleepMaxUs = 50;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // a wait; `yield` does nothing on most of these processors
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
  // Memory with a copy under way must not be given back, which may come next.
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
    usleep(sleep_us);  // that a signal cuts it short does no harm
    const GpuResult result = driver_->Check();
    if (!result.ok()) return result;
  }
  return GpuResult::Ok();
}

}  // namespace specd
