// The daemon: owns everything, starts the threads, serves the control socket, drains and stops.
//
//   control thread    accepts engines, answers control messages, waits for signals (the caller's)
//   verify thread     VerifyLoop
//   publisher thread  Publisher
//   text thread       TextWorker, with --detokenizer=thread
#pragma once

#include "absl/status/status.h"
#include "daemon/config.h"

namespace specd {

// Runs until SIGTERM or SIGINT and returns the exit code: 0 after a clean drain, 1 if it could not
// start, 70 after a device error (a supervisor should restart it). Blocks both signals in all
// threads. REQUIRES: SetUpLogging was called.
int RunDaemon(const DaemonConfig& config);

}  // namespace specd
