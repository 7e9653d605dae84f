// The step functions let a test control a program. The program writes each step as a line on
// standard output, and a line on standard input lets it continue. If standard input closes, the
// program ends with status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

namespace specd {

inline void Say(const std::string& step) {
  std::printf("%s\n", step.c_str());
  std::fflush(stdout);
}

inline std::string AwaitLine() {
  std::string line;
  if (std::getline(std::cin, line)) return line;
  std::fprintf(stderr, "standard input closed\n");
  std::_Exit(1);
}

}  // namespace specd
