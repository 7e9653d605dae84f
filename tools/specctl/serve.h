// Serve answers /metrics, /live and /ready over HTTP out of a counters file.
//
// The daemon has no HTTP in it: this is a process of its own, which may start before the daemon and
// outlive it. Runs until SIGINT or SIGTERM.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace specd::ctl {

// INVALID_ARGUMENT if the address is none; another error if it cannot be listened to.
absl::Status Serve(const std::string& counters_path, const std::string& address);

}  // namespace specd::ctl
