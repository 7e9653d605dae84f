// The functions here speak with the service manager that has started this process (systemd's
// protocols LISTEN_FDS and NOTIFY_SOCKET; no library of systemd is needed).
//
// A listening socket of the service manager outlives the process. Engines that connect while the
// daemon is being replaced wait in its queue. Call these functions before the first thread begins,
// because they change the environment.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"

namespace specd {

// The control socket at `path` that the service manager listens on, or an invalid descriptor if it
// has passed none. An error if it has passed another one.
absl::StatusOr<UniqueFd> TakeListeningSocket(const std::string& path);

// Tells the service manager a state such as "READY=1". Nothing happens if there is none.
void NotifyServiceManager(std::string_view state);

}  // namespace specd
