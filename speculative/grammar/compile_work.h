// CompileWork bounds the work of compiling one constraint, however small its text is.
//
// A text of ten bytes can ask for billions of steps. The loops that can grow so spend units, about
// one for each node or edge that they look at. When a bound is used up they fail with
// RESOURCE_EXHAUSTED. The bound holds for this thread, as long as the object lives; without one
// nothing is bounded.
//
//   CompileWork work(CompileWork::kUnitsMax);
//   auto network = Network::Build(rules);
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace specd::grammar {

class CompileWork {
 public:
  // About a second of one processor, as measured (grammar.a small text cannot compile for long).
  static constexpr size_t kUnitsMax = size_t{1} << 27;

  explicit CompileWork(size_t units_max);
  ~CompileWork();
  CompileWork(const CompileWork&) = delete;
  CompileWork& operator=(const CompileWork&) = delete;

  // False: the bound is used up.
  static bool Spend(size_t units);
  static absl::Status TooMuch();

 private:
  CompileWork* const outer_;
  size_t units_left_;
};

}  // namespace specd::grammar
