// ValidateParams checks the parameters of one sequence: each value, then each combination.
// A pure function, for any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "speculative/params/params.h"

namespace specd {

// Returns an error for the first field outside its range, or the first combination that cannot be
// honoured. The error has the value, the range and the remedy (param_table.h, param_rules.h).
absl::Status ValidateParams(const SequenceParams& params, int32_t vocab_size);

}  // namespace specd
