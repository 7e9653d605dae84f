#include "daemon/server/control_connection.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {

UniqueFd OpenProcess(int32_t pid) {
  return UniqueFd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
}

ControlConnection::Sent ControlConnection::Send(ControlService::Answer answer) {
  SPECD_CHECK(!waiting.has_value());
  waiting = std::move(answer);
  return SendWaiting();
}

ControlConnection::Sent ControlConnection::SendWaiting() {
  if (!waiting.has_value()) return Sent::kAll;
  const std::span<const int> fds(&waiting->fd, waiting->fd >= 0 ? 1 : 0);
  const absl::Status status = socket.Send(waiting->message, fds, absl::ZeroDuration());
  if (ErrorCodeOf(status) == SPECD_ERROR_TIMEOUT) return Sent::kWaits;
  waiting.reset();
  return status.ok() ? Sent::kAll : Sent::kBroken;
}

short ControlConnection::events() const {
  // The next message of a peer that is busy, or that does not read, waits in the socket.
  if (busy) return POLLRDHUP;
  return waiting.has_value() ? POLLOUT | POLLRDHUP : POLLIN;
}

}  // namespace specd
