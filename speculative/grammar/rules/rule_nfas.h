// RuleNfas holds the automata of a grammar's rules in a form in which no call can be endless.
//
// A LazyAutomaton (lazy_automaton.h) follows calls before it reads a byte. A rule that calls itself
// there would never return. BuildRuleNfas therefore removes two things, and no text is lost:
//   - rules with the empty text. A call of such a rule becomes a call of the same rule without it,
//     beside an empty edge;
//   - left recursion: rules that reach each other through their first calls. Left-recursive rules
//     get one automaton each. It reads the first part, then wraps it rule by rule, up to its rule.
// Rules and nodes from which no text can be completed are removed too, so every state of the lazy
// automaton can be completed.
#pragma once

#include "absl/status/statusor.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/byte_nfa.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct RuleNfas {
  List<ByteNfa> rules;  // none accepts the empty text; calls are indices into this list
  uint32_t root = 0;
  bool accepts_empty = false;  // the grammar has the empty text beside the root's
  bool is_never = false;       // the grammar has no text at all
};

// Texts with bytes outside `bytes` are left out. REQUIRES: the root is set, and every rule that it
// reaches is defined.
absl::StatusOr<RuleNfas> BuildRuleNfas(const GrammarRules& rules,
                                       const ByteSet& bytes = ByteSet::All());

}  // namespace specd::grammar
