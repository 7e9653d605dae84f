// SetCompileMs and SetCompileMib put two options into the limits of a compile, for the flags of the
// daemon and the fields of specd_options.
//
// An error names the option, its value and its range. Pure functions, safe from any thread.
//
//   grammar::BudgetLimits limits = grammar::CompileLimits();
//   absl::Status status = SetCompileMs(500, &limits);
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "speculative/grammar/base/budget.h"

namespace specd {

// The CPU time of one compile.
absl::Status SetCompileMs(int64_t compile_ms, grammar::BudgetLimits* limits);

// The memory that one compile takes at any time.
absl::Status SetCompileMib(int64_t compile_mib, grammar::BudgetLimits* limits);

}  // namespace specd
