// MakeSocketLink makes the link of an engine, or of a rank, that has connected to a daemon.
//
// The daemon answers requests in order. A call that its answer did not reach in time is given up:
// the link tells the daemon, drops the late answer when it comes, and goes on. The link of a rank
// ends instead. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "daemon/client/engine_link.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

// Reconnect connects to the same path.
std::unique_ptr<EngineLink> MakeSocketLink(UnixConnection connection, absl::Duration timeout,
                                           std::string path);

}  // namespace specd
