#include "kernels/cpu/spin_barrier.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "kernels/core/check.h"

namespace specd {

namespace {

constexpr uint32_t kOneArrived = 1u << 16;
constexpr uint32_t kParticipants = kOneArrived - 1;

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

}  // namespace

void AwaitChange(const std::atomic<uint32_t>& word, uint32_t value) {
  // A pause takes 10 to 40 ns, so the spins take some tens of microseconds: the time of a row.
  constexpr int kNumSpins = 1000;
  for (int i = 0; i < kNumSpins; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  word.wait(value, std::memory_order_acquire);
}

void SpinBarrier::Reset(int32_t num_participants) {
  SPECD_CHECK(num_participants >= 1 && num_participants <= int32_t{kParticipants});
  // Relaxed: the start of the groups orders this store.
  state_.store(static_cast<uint32_t>(num_participants), std::memory_order_relaxed);
}

void SpinBarrier::Wait() {
  // Relaxed: the phase cannot change before this group has arrived.
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  const uint32_t state = state_.fetch_add(kOneArrived, std::memory_order_acq_rel) + kOneArrived;
  if (state / kOneArrived == (state & kParticipants)) return Release(state / kOneArrived);
  AwaitChange(phase_, phase);
}

void SpinBarrier::Leave() {
  const uint32_t state = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  const uint32_t arrived = state / kOneArrived;
  if (arrived != 0 && arrived == (state & kParticipants)) Release(arrived);
}

// Every participant that is still inside waits, so no other thread touches the state.
void SpinBarrier::Release(uint32_t arrived) {
  state_.fetch_sub(arrived * kOneArrived, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
}

}  // namespace specd
