// The formats of JSON Schema that specd enforces, as automata over the characters of a string.
//
// Each automaton accepts only texts that the format's RFC allows. Dates, times, UUIDs and IP
// addresses accept every such text, with three exceptions: lower-case t and z, leap seconds, and
// the year 0000. Email, hostname, uri and duration accept the forms in common use (the table in
// schema_formats.cc).
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/byte_dfa.h"

namespace specd::grammar {

// Their names, for errors.
std::span<const std::string_view> EnforcedFormats();
bool IsEnforcedFormat(std::string_view name);

// REQUIRES: IsEnforcedFormat(name).
absl::StatusOr<ByteDfa> FormatAutomaton(std::string_view name);

}  // namespace specd::grammar
