// ParseFlags reads the flags of a program, for the mains here and under tools/.
//
// Abseil ends the process with 1 for a flag that does not exist, for a value that is none, and for
// --help. Here every wrong command line has code 2, and --help has 0.
// Call it once, on the main thread.
#pragma once

#include <string_view>
#include <vector>

namespace specd {

inline constexpr int kExitBadCommandLine = 2;

// What --help and --version print.
struct ProgramWords {
  std::string_view usage;         // with examples
  std::string_view source;        // the file or folder with the flags, such as daemon/main.cc
  std::string_view version = "";  // empty: Abseil's own
};

// Returns the arguments that are no flags, with the program's name first.
std::vector<char*> ParseFlags(int argc, char** argv, const ProgramWords& program);

}  // namespace specd
