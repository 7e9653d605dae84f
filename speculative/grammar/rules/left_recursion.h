// RemoveLeftRecursion rewrites rules that can call themselves before they read a byte, for
// BuildRuleNfas.
//
// Rules that reach each other through their first calls form a group. Each rule of a group gets one
// automaton. It reads a first part that begins with no call of the group, then wraps it rule by
// rule, up to its own rule. No text is lost. Pure function, for any thread.
#pragma once

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/byte_nfa.h"

namespace specd::grammar {

// Calls in `rules` are indices into the list. If the new automata had more than kNfaNodesMax nodes,
// returns false and changes nothing. REQUIRES: no rule has the empty text.
bool RemoveLeftRecursion(List<ByteNfa>* rules);

}  // namespace specd::grammar
