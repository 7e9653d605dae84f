#include "daemon/session/session_state.h"

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::Status SessionState::CheckRunning() const {
  // Pairs with the release in Session::End: a caller that sees the end finds the events before the
  // end.
  if (!ended.load(std::memory_order_acquire)) return absl::OkStatus();
  return MakeError(SPECD_ERROR_SHUTDOWN, "", "the session has ended; close and attach again");
}

}  // namespace specd
