// SetNumber and NumberOf set and read parameters that are one number by their names, for engines
// and bindings that send them so.
//
// A flag is 0 or 1 and a choice is the index of its name. A double holds every value of such a
// parameter. The seed, which has 64 bits, and the lists travel in fields of their own. Pure
// functions, safe from any thread.
//
//   SequenceParams params;
//   absl::Status status = SetNumber("top_p", 0.9, &params);
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "speculative/params/param_table.h"
#include "speculative/params/params.h"

namespace specd {

bool IsNumber(const ParamRow& row);

// REQUIRES: IsNumber(row).
double NumberOf(const ParamRow& row, const SequenceParams& params);

// Refuses a value that the member cannot hold, and a name that is not a number's. A name that a
// peer has gives UNIMPLEMENTED with the remedy (param_rules.h). Any other name gives
// INVALID_ARGUMENT with the nearest name. ValidateParams judges the range.
absl::Status SetNumber(std::string_view name, double value, SequenceParams* params);

}  // namespace specd
