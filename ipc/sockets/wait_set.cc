#include "ipc/sockets/wait_set.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::StatusOr<std::unique_ptr<WaitSet>> WaitSet::Make() {
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return MakeErrnoError(SPECD_ERROR_DISCONNECTED, "", "an eventfd", errno);
  return std::unique_ptr<WaitSet>(new WaitSet(std::move(bell)));
}

WaitSet::WaitSet(UniqueFd bell) : bell_(std::move(bell)) { fds_.push_back(bell_.get()); }

void WaitSet::Wait(absl::Duration timeout, absl::FunctionRef<bool()> ready) {
  // Pairs with the exchange in Ring. The later of the two sees the other: either the ringer sees
  // that this thread waits, or `ready` sees what the ringer has written. Forbidden: the look of
  // `ready` moving before this exchange.
  is_waiting_.exchange(true, std::memory_order_acq_rel);
  if (!ready()) ZmqSocket::WaitAny(sockets_, fds_, timeout);
  is_waiting_.exchange(false, std::memory_order_acq_rel);
  // A ring that came between a wait and this line is read by a later call, which it wakes in vain.
  eventfd_t rings = 0;
  eventfd_read(bell_.get(), &rings);
}

void WaitSet::Ring() {
  // Pairs with the exchange in Wait (see there). Forbidden: our earlier writes moving after this
  // exchange.
  if (is_waiting_.exchange(false, std::memory_order_acq_rel)) eventfd_write(bell_.get(), 1);
}

}  // namespace specd
