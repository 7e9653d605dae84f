// ParsePlainRegex reads a pattern in which every lookahead is refused. ParseRegex (regex.h) is the
// entry, which says what the dialect is.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/front_ends/anchored_expr.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

inline constexpr size_t kRegexDepthMax = 256;        // groups inside groups
inline constexpr uint32_t kRegexCountMax = 1 << 16;  // the m and n of {m,n}
inline constexpr int kRegexAnchorRepeatsMax = 4;     // repetitions around an anchor

// REQUIRES: `pattern` is UTF-8. Where `is_search`, the text has a match at some place; otherwise it
// is one.
absl::StatusOr<ExprId> ParsePlainRegex(std::string_view pattern, bool is_search,
                                       GrammarRules* rules);

// The same, with what ^ and $ make of it.
absl::StatusOr<AnchoredExpr> ParseAnchoredRegex(std::string_view pattern, GrammarRules* rules);

}  // namespace specd::grammar
