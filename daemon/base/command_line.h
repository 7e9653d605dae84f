// ParseFlags reads the flags of a program, for the mains here and under tools/.
//
// Abseil ends the process with 1 for a flag that does not exist, for a value that is none, and for
// --help. Here every wrong command line has code 2, and --help has 0.
// Call it once, on the main thread.
#pragma once

#include <vector>

namespace specd {

inline constexpr int kExitBadCommandLine = 2;

// Returns the arguments that are no flags, with the program's name first.
std::vector<char*> ParseFlags(int argc, char** argv);

}  // namespace specd
