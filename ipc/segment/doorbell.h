// Doorbell lets a thread sleep until another process (or thread) has done something, without a lost
// wake.
//
// The other side calls Ring, which costs one atomic operation while no thread sleeps. The waiter
// passes its condition, which is checked again after the intention to sleep is visible. A ring in
// between is therefore never lost. There is one waiter for each doorbell and any number of ringers.
// The words lie in shared memory. A hostile peer can cause needless wakes, but no other session
// misses a wake.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "ipc/segment/layout.h"

namespace specd {

// A spin answers in a tenth of a microsecond, a wake in tens of microseconds, but a spin occupies a
// core. Spin only if the answer is expected within the spin and a core is free.
struct WaitOptions {
  int64_t spin_ns = 0;
  absl::Duration timeout = absl::InfiniteDuration();
};

class Doorbell {
 public:
  explicit Doorbell(DoorbellLine* line) : line_(line) {}

  // Wakes the waiter if there is one. REQUIRES: the caller has written everything that the waiter's
  // condition reads.
  void Ring() const;

  // Returns true as soon as ready() does, and false if the timeout passes first. It wakes early
  // only to call ready() again.
  bool Wait(const WaitOptions& options, absl::FunctionRef<bool()> ready) const;

  DoorbellLine* line() const { return line_; }

 private:
  DoorbellLine* line_;
};

// At most this many doorbells can be waited for at once (the kernel's FUTEX_WAITV_MAX).
inline constexpr size_t kWaitAnyMax = 128;

// The same for a thread that serves several sessions: sleeps on all doorbells at once. On a kernel
// older than 5.16 it looks every millisecond instead.
bool WaitAny(std::span<const Doorbell> bells, const WaitOptions& options,
             absl::FunctionRef<bool()> ready);

}  // namespace specd
