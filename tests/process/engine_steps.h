// How an engine of these tests tells its steps and ends where something is wrong: with status 1 and
// a line on standard error.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "ipc/include/specd/specd.h"
#include "kernels/core/gpu_context.h"

namespace specd {

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "%s (%s)\n", what.c_str(), specd_last_error());
  std::_Exit(1);
}
inline void Check(bool is_so, const std::string& what) {
  if (!is_so) Die(what);
}
inline void Check(const GpuResult& result, const char* what) {
  Check(result.ok(), what + result.text());
}

inline void Say(const std::string& step) {
  std::printf("%s\n", step.c_str());
  std::fflush(stdout);
}
inline std::string AwaitLine() {
  std::string line;
  Check(static_cast<bool>(std::getline(std::cin, line)), "standard input closed");
  return line;
}

}  // namespace specd
