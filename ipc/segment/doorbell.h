// Doorbell: sleeps until another process (or thread) has done something, without losing a wake.
//
// The one who did something calls Ring; it costs one atomic operation while nobody sleeps. The one
// who waits says what it waits for: the condition is checked again after the intention to sleep is
// visible, so a ring in between is never lost. One waiter per doorbell; any number of ringers. The
// words lie in shared memory; a hostile peer can cause needless wakes, never a missed one of
// another session.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "ipc/segment/layout.h"

namespace specd {

// Spinning answers in a tenth of a microsecond where a wake takes tens, but burns a core: worth it
// only when the answer is expected within the spin, and with a core to spare.
struct WaitOptions {
  int64_t spin_ns = 0;
  absl::Duration timeout = absl::InfiniteDuration();
};

class Doorbell {
 public:
  explicit Doorbell(DoorbellLine* line) : line_(line) {}

  // Wakes the waiter if there is one. What the waiter's condition reads must have been written
  // before.
  void Ring() const;

  // True as soon as ready() is, false when the timeout has passed and it still is not. Returns
  // early from sleep only to call ready() again.
  bool Wait(const WaitOptions& options, absl::FunctionRef<bool()> ready) const;

  DoorbellLine* line() const { return line_; }

 private:
  DoorbellLine* line_;
};

// At most this many doorbells can be waited for at once (the kernel's FUTEX_WAITV_MAX).
inline constexpr size_t kWaitAnyMax = 128;

// The same for a thread that serves several sessions: sleeps on all doorbells at once. On a kernel
// older than 5.16 it looks every millisecond instead.
// REQUIRES: 1 <= bells.size() <= kWaitAnyMax.
bool WaitAny(std::span<const Doorbell> bells, const WaitOptions& options,
             absl::FunctionRef<bool()> ready);

}  // namespace specd
