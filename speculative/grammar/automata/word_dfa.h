// BuildWordDfa makes the smallest automaton of a finite list of texts.
//
// Texts that begin or end alike share states. The method is the incremental one for sorted lists
// (Daciuk, Mihov, Watson and Watson, "Incremental Construction of Minimal Acyclic Finite-State
// Automata", 2000). Pure function, for any thread.
//
//   absl::StatusOr<ByteDfa> dfa = BuildWordDfa({"no", "yes"});
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

// The limit is that of the nodes of one grammar.
inline constexpr size_t kWordDfaStatesMax = 1 << 20;

// The order of the words does not matter, nor does a word that is there twice. Fails with
// RESOURCE_EXHAUSTED if the automaton would have more than kWordDfaStatesMax states.
absl::StatusOr<ByteDfa> BuildWordDfa(List<std::string_view> words);

}  // namespace specd::grammar
