// FindInlinedRules chooses the rules whose automata take the place of their calls, for
// BuildRuleNfas.
//
// A call costs a step at run time and a node to return to. A rule that is small, or that is called
// once, is therefore copied into its callers. Pure function, for any thread.
#pragma once

#include <vector>

#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

// Returns a flag for each rule. No flagged rule leads back to itself, and the root has none.
// REQUIRES: the root is set, and every rule that it reaches is defined.
std::vector<bool> FindInlinedRules(const GrammarRules& rules);

}  // namespace specd::grammar
