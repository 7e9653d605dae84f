// ParseRegex turns a regular expression into an expression of grammar rules.
//
// The dialect is what ECMA-262 and Python's re have in common. Where the two differ, ECMA-262
// decides (\d \w are ASCII, \s and . are its lists, $ is the end of the text alone), or the pattern
// is refused. ^ and $ are exact at any place. Groups of every kind only group, and a lazy
// quantifier has the language of its greedy form. The engine never searches inside a pattern, so
// backreferences, \b, \B and lookaround are refused by name. Lookaheads at the begin of a pattern
// are exact (lookahead.h).
//
//   absl::StatusOr<ExprId> year = ParseRegex("(19|20)\\d{2}", {}, &rules);
//   absl::StatusOr<ExprId> key = ParseRegex("^x-", {.search = true}, &rules);   // JSON Schema
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct RegexOptions {
  // False: the whole text matches. True: the text has a match at some place, and any characters
  // around it.
  bool search = false;
};

inline constexpr size_t kRegexSizeMaxBytes = 64 * 1024;

// A pattern that no text matches, as `a^b`, gives Never().
// InvalidArgument: the pattern is wrong. Unimplemented: it is right, and specd cannot enforce it.
// ResourceExhausted: it is past a limit. Each error shows the place.
absl::StatusOr<ExprId> ParseRegex(std::string_view pattern, const RegexOptions& options,
                                  GrammarRules* rules);

}  // namespace specd::grammar
