// RunDaemon runs the daemon for main.cc: it starts the threads, serves the control socket, drains
// and stops. The daemon owns every object that its threads use.
//
//   control thread    accepts engines, answers control messages, waits for signals (the caller's)
//   opening threads   OpeningThreads: openings with lists or constraints, for the control thread
//   verify thread     VerifyLoop
//   publisher thread  Publisher
//   text thread       TextWorker, with --detokenizer=thread
#pragma once

#include "absl/status/status.h"
#include "daemon/config.h"
#include "ipc/base/unique_fd.h"

namespace specd {

// Runs until SIGTERM or SIGINT. Returns the exit code: 0 after a clean drain, 1 if the daemon could
// not start, 70 after a device error. A supervisor should restart a daemon that returned 70. Both
// signals are blocked in all threads. `listening`: ControlServer::Create. REQUIRES: SetUpLogging
// was called.
int RunDaemon(const DaemonConfig& config, UniqueFd listening);

}  // namespace specd
