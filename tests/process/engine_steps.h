// Functions with which an engine of these tests ends if something is wrong: with status 1 and a
// line on standard error. Its steps are in tests/support/steps.h.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "ipc/include/specd/specd.h"
#include "kernels/core/gpu_context.h"
#include "tests/support/steps.h"

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

}  // namespace specd
