#include "ipc/segment/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <limits>

#include "kernels/core/check.h"

// Linux has this system call since 5.16; the libc headers of some supported systems are older.
// Number and struct are the same on every architecture.
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace specd {
namespace {

struct FutexWaitv {
  uint64_t val;
  uint64_t uaddr;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kFutexSize32 = 2;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kLookEveryNs = 1'000'000;

// The kernel's own clock bounds the wait, because futex timeouts use it. A test's clock cannot
// replace it.
int64_t MonotonicNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t DeadlineAfter(absl::Duration timeout) {
  const int64_t now_ns = MonotonicNs();
  const int64_t timeout_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(timeout));
  return timeout_ns > kNever - now_ns ? kNever : now_ns + timeout_ns;
}

timespec ToTimespec(int64_t time_ns) {
  return {static_cast<time_t>(time_ns / 1'000'000'000), static_cast<long>(time_ns % 1'000'000'000)};
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool SpinUntil(int64_t spin_ns, absl::FunctionRef<bool()> ready) {
  if (ready()) return true;
  if (spin_ns <= 0) return false;
  const int64_t end_ns = DeadlineAfter(absl::Nanoseconds(spin_ns));
  do {
    // A read of the clock costs as much as about ten looks at a cached line.
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (MonotonicNs() < end_ns);
  return false;
}

// Sleeps while *word is `expected`, at most until the absolute time. Not FUTEX_PRIVATE: the other
// side is another process.
void SleepOnOne(std::atomic<uint32_t>* word, uint32_t expected, int64_t deadline_ns) {
  const timespec until = ToTimespec(deadline_ns);
  // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. An interrupted sleep therefore needs
  // no arithmetic.
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline_ns == kNever ? nullptr : &until,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

// The same for several words. On a kernel without futex_waitv (or in a sandbox that hides it) it
// sleeps on the first word for at most a millisecond.
void SleepOnAny(std::span<const Doorbell> bells, std::span<const uint32_t> expected,
                int64_t deadline_ns) {
  std::array<FutexWaitv, kWaitAnyMax> waits;
  for (size_t i = 0; i < bells.size(); ++i) {
    waits[i] = {expected[i], reinterpret_cast<uint64_t>(&bells[i].line()->word), kFutexSize32, 0};
  }
  const timespec until = ToTimespec(deadline_ns);
  const long result = syscall(SYS_futex_waitv, waits.data(), bells.size(), 0,
                              deadline_ns == kNever ? nullptr : &until, CLOCK_MONOTONIC);
  if (result < 0 && (errno == ENOSYS || errno == EPERM)) {
    const int64_t look_ns = MonotonicNs() + kLookEveryNs;
    SleepOnOne(&bells[0].line()->word, expected[0], std::min(deadline_ns, look_ns));
  }
}

}  // namespace

void Doorbell::Ring() const {
  // An atomic read-modify-write, not a load: pairs with the exchange in WaitAny. The later of the
  // two, in the order of this one word, sees the other. If this one is later, it sees the waiter.
  // If the waiter's is later, it synchronizes with this one, and the waiter's next look at the
  // condition sees everything written before the ring. Forbidden: our earlier writes moving after
  // this operation.
  if (line_->waiters.fetch_add(0, std::memory_order_acq_rel) == 0) return;
  // Pairs with the acquire load in WaitAny and with the kernel's own comparison. A sleeper that
  // read the old value no longer falls asleep on it.
  line_->word.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &line_->word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Doorbell::Wait(const WaitOptions& options, absl::FunctionRef<bool()> ready) const {
  return WaitAny({this, 1}, options, ready);
}

bool WaitAny(std::span<const Doorbell> bells, const WaitOptions& options,
             absl::FunctionRef<bool()> ready) {
  SPECD_CHECK(!bells.empty() && bells.size() <= kWaitAnyMax);
  const int64_t deadline_ns = DeadlineAfter(options.timeout);
  const int64_t spin_ns = std::min(options.spin_ns, absl::ToInt64Nanoseconds(options.timeout));
  if (SpinUntil(spin_ns, ready)) return true;

  std::array<uint32_t, kWaitAnyMax> expected;
  while (true) {
    for (size_t i = 0; i < bells.size(); ++i) {
      DoorbellLine* line = bells[i].line();
      // Pairs with the fetch_add of `word` in Ring. Forbidden: this load moving after the exchange.
      // A ring between the two would then leave us asleep on the new value.
      expected[i] = line->word.load(std::memory_order_acquire);
      // Pairs with the fetch_add of `waiters` in Ring (see there). Forbidden: the look at the
      // condition below moving before this exchange.
      line->waiters.exchange(1, std::memory_order_acq_rel);
    }
    const bool is_ready = ready();
    const bool is_late = !is_ready && MonotonicNs() >= deadline_ns;
    if (!is_ready && !is_late) {
      if (bells.size() == 1) {
        SleepOnOne(&bells[0].line()->word, expected[0], deadline_ns);
      } else {
        SleepOnAny(bells, {expected.data(), bells.size()}, deadline_ns);
      }
    }
    if (!is_ready && !is_late && !ready()) continue;
    // This is a read-modify-write too. A plain store would cut the chain through which the next
    // exchange synchronizes with an earlier ring.
    for (const Doorbell& bell : bells) bell.line()->waiters.exchange(0, std::memory_order_acq_rel);
    return !is_late;
  }
}

}  // namespace specd
