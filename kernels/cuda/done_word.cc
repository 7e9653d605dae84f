#include "kernels/cuda/done_word.h"

#include <sched.h>

#include <atomic>
#include <new>

namespace specd {

namespace {

// Of a word that is not there yet, before the driver is asked whether the device still works: some
// 20 us, so that a round of usual length asks it for nothing. Then other threads get their turn.
constexpr int kLooksPerCheck = 1024;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
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
  for (int looks = 1; LookAtWord(plan_.done) < number; ++looks) {
    Pause();
    if (looks < kLooksPerCheck) continue;
    looks = 0;
    const GpuResult result = driver_->Check();
    if (!result.ok()) return result;
    sched_yield();
  }
  return GpuResult::Ok();
}

}  // namespace specd
