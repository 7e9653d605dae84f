// Checks and translates the texts of constraints before the xgrammar library reads them.
//
// The library has no choices, and it drops parts of patterns that it does not know.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::grammar {

// A JSON array of strings becomes a grammar with one alternative for each.
absl::StatusOr<std::string> ChoiceToEbnf(std::string_view text);

// The library recurses into the groups of patterns and grammars.
inline constexpr size_t kGroupDepthMax = 256;

// Unimplemented for a pattern with parts that the library ignores: lookaround, and anchors inside.
// ResourceExhausted if the groups are nested too deep.
absl::Status CheckPattern(std::string_view pattern);

// ResourceExhausted if the groups of a grammar are nested too deep.
absl::Status CheckEbnf(std::string_view text);

// The text of an error of the library without its clock, file and line.
std::string_view TrimError(std::string_view text);

}  // namespace specd::grammar
