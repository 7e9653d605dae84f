// The formats of JSON Schema that specd enforces, as automata over the characters of a string.
//
// Each offers texts that its RFC allows, and nothing else. Dates, times, UUIDs and addresses of IP
// are complete but for upper and lower case of T and Z, leap seconds, and the year 0000; email,
// hostname, uri and duration are the forms in common use (the table in schema_formats.cc).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/byte_dfa.h"

namespace specd::grammar {

bool IsEnforcedFormat(std::string_view name);

// REQUIRES: IsEnforcedFormat(name).
absl::StatusOr<ByteDfa> FormatAutomaton(std::string_view name);

}  // namespace specd::grammar
