// MakeRuleGraph makes the automaton of one rule deterministic, where that costs little.
//
// A node of the result is the set of nodes that one text can lead to. A rule that would grow keeps
// its nodes, each with the edges of its closure. Pure function, for any thread.
//
//   absl::StatusOr<RuleGraph> graph = MakeRuleGraph(nfa);   // Status: the budget is used up
#pragma once

#include "absl/status/statusor.h"
#include "speculative/grammar/network/rule_graph.h"
#include "speculative/grammar/rules/byte_nfa.h"

namespace specd::grammar {

// Equal nodes are one if the result is deterministic. REQUIRES: `nfa` is no frame rule.
absl::StatusOr<RuleGraph> MakeRuleGraph(const ByteNfa& nfa);

}  // namespace specd::grammar
