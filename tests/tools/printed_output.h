// Printed has what a suite of specd-bench prints, for tests of suites that run in the process of
// the test. JsonPrinted has it as lines of JSON. One thread.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstdio>
#include <string>

#include "absl/functional/function_ref.h"
#include "tools/bench/output.h"

namespace specd::bench {

inline std::string Printed(const std::string& suite, Format format,
                           absl::FunctionRef<void(Output* out)> run) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  Output out({.suite = suite, .command = "", .format = format, .out = file});
  run(&out);
  REQUIRE(std::fclose(file) == 0);
  std::string printed(text, size);
  free(text);
  return printed;
}
inline std::string JsonPrinted(const std::string& suite, absl::FunctionRef<void(Output* out)> run) {
  return Printed(suite, Format::kJson, run);
}

}  // namespace specd::bench
