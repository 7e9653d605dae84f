// LookaheadAutomaton compiles a pattern whose lookaheads are at its begin, for ParseRegex.
//
// There a lookahead speaks of the whole text: ^(?=a)b asks for the texts of both ^a and ^b, and
// ^(?!a)b for those of ^b that are not of ^a. So operations on automata do it exactly. A lookahead
// at any other place depends on where its match begins; ParseRegex refuses it.
//
//   if (HasLookahead(pattern)) dfa = LookaheadAutomaton(pattern, /*is_search=*/true);
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"

namespace specd::grammar {

bool HasLookahead(std::string_view pattern);

// Nothing if no lookahead is at the begin, or if the pattern's groups do not match: ParseRegex then
// reads the pattern itself. The errors are those of ParseRegex and of dfa_operations.h; a place in
// them is a place in the part that they show.
absl::StatusOr<std::optional<ByteDfa>> LookaheadAutomaton(std::string_view pattern, bool is_search);

}  // namespace specd::grammar
