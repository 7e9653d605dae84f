// RunPython is `specd-bench python`: it reads the flags, runs PythonSuite and prints its lines.
//
// Call it once, on the main thread, after the flags were parsed.
#pragma once

#include <string>

namespace specd::bench {

// Returns the exit code. `command` is the command line, for the report.
int RunPython(const std::string& command);

}  // namespace specd::bench
