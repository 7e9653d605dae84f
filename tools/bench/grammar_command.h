// RunGrammar is `specd-bench grammar`: it reads the flags and runs GrammarSuite.
//
// Call it once, on the main thread, after the flags were parsed.
#pragma once

#include <string>

namespace specd::bench {

// Returns the exit code. `command` is the command line, for the report.
int RunGrammar(const std::string& command);

}  // namespace specd::bench
