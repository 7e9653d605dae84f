// The formats of JSON Schema as automata over the characters of a string.
//
// Each automaton is made once for the process, and accepts only texts that the format's RFC allows.
// Dates, UUIDs, IP addresses, URIs, references and JSON pointers accept every such text, except for
// the year 0000. The others accept the forms in common use; the comments in string_formats.cc say
// which.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/json_schema/string_schema.h"

namespace specd::grammar {

// JSON Schema names the format. It asks validators to ignore every other one.
bool IsStandardFormat(std::string_view name);

// REQUIRES: IsStandardFormat(name).
absl::StatusOr<SharedDfa> FormatAutomaton(std::string_view name);

}  // namespace specd::grammar
