// RunGrammar is `specd-bench grammar`: it reads the flags and runs GrammarSuite.
//
// Called once, after the flags were parsed, on the main thread.
#pragma once

#include <string>

namespace specd::bench {

// Returns the exit code. `command` is the command line, for the report.
int RunGrammar(const std::string& command);

}  // namespace specd::bench
