// How a program that a test plays with tells its steps, a line each on standard output, and is told
// to go on, by lines on standard input. Where that one is closed, nobody plays any more: it ends
// with status 1.
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
