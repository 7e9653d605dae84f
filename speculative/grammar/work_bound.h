// WorkBound bounds the work of compiling one constraint or of building one mask, however small the
// constraint's text is.
//
// A text of ten bytes can ask for billions of steps. The loops that can grow so spend units, about
// one for each node or edge that they look at. When a bound is used up they fail. The bound holds
// for this thread, as long as the object lives; without one nothing is bounded. An inner bound
// replaces the outer one, which goes on after it.
//
//   WorkBound work(WorkBound::kCompileUnitsMax);
//   auto network = Network::Build(rules);
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace specd::grammar {

class WorkBound {
 public:
  // About a second of one processor, as measured (grammar.a small text cannot compile for long).
  static constexpr size_t kCompileUnitsMax = size_t{1} << 27;

  explicit WorkBound(size_t units_max);
  ~WorkBound();
  WorkBound(const WorkBound&) = delete;
  WorkBound& operator=(const WorkBound&) = delete;

  // False: the bound is used up.
  static bool Spend(size_t units);
  static absl::Status TooMuch();

 private:
  WorkBound* const outer_;
  size_t units_left_;
};

}  // namespace specd::grammar
