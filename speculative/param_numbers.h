// Parameters that are one number, set and read by their names: the form in which they travel.
//
// A flag is 0 or 1 and a choice the index of its name. A double holds every value that such a
// parameter may have; the seed, which has 64 bits, and the lists have fields of their own wherever
// parameters are handed on. Pure functions, safe from any thread.
//
//   SequenceParams params;
//   absl::Status status = SetNumber("top_p", 0.9, &params);
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "speculative/param_table.h"
#include "speculative/params.h"

namespace specd {

bool IsNumber(const ParamRow& row);

// REQUIRES: IsNumber(row).
double NumberOf(const ParamRow& row, const SequenceParams& params);

// Refuses a value that the member cannot hold, and a name that is not a number's: UNIMPLEMENTED
// with the remedy where a peer has it (param_rules.h), else INVALID_ARGUMENT with the nearest name.
// ValidateParams judges the range.
absl::Status SetNumber(std::string_view name, double value, SequenceParams* params);

}  // namespace specd
