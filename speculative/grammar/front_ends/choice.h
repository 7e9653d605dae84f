// BuildChoice turns a JSON array of strings into a constraint, for kind kChoice: the text is one of
// the strings.
//
// Strings may begin alike, contain one another, repeat, and be empty. Pure function, for any
// thread.
//
//   GrammarRules rules;
//   absl::StatusOr<ExprId> one_of_two = BuildChoice(R"(["yes", "no"])", &rules);
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

inline constexpr size_t kChoicesMax = 65536;
inline constexpr size_t kChoiceSizeBytesMax = 4 << 20;

// InvalidArgument: not such an array, or an empty one (with the JSON pointer). ResourceExhausted:
// past a limit.
absl::StatusOr<ExprId> BuildChoice(std::string_view json_array, GrammarRules* rules);

}  // namespace specd::grammar
