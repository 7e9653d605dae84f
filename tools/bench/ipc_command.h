// RunIpc is `specd-bench ipc`: it reads the flags, runs IpcSuite and prints its lines.
//
// Call it once, on the main thread, after the flags were parsed.
#pragma once

#include <string>

namespace specd::bench {

// Returns the exit code. `command` is the command line, for the report.
int RunIpc(const std::string& command);

}  // namespace specd::bench
