#include "tests/support/engine_failure.h"

#include <cstdio>
#include <cstdlib>

#include "ipc/include/specd/specd.h"

namespace specd {

void DieAsEngine(const std::string& what, int status) {
  std::fprintf(stderr, "engine: %s (%s)\n", what.c_str(), specd_last_error());
  std::_Exit(status);
}
void Require(bool is_so, const std::string& otherwise) {
  if (!is_so) DieAsEngine(otherwise);
}
void Require(const GpuResult& result, const char* what) {
  if (!result.ok()) DieAsEngine(std::string(what) + ": " + std::string(result.text()));
}

}  // namespace specd
