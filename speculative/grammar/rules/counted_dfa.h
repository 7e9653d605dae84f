// CountCharacters keeps the texts of an automaton that have a number of characters, for minLength
// and maxLength beside a pattern or a format.
//
// A state of the result is a state of `dfa` and a count. An automaton of the length alone would
// have several states for each character, because of UTF-8, and intersecting it would visit them
// all.
//
//   auto short_names = CountCharacters(names, {.min = 1, .max = 64});
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"

namespace specd::grammar {

struct CharacterCounts {
  uint32_t min = 0;
  uint32_t max = 0;  // kUnbounded: no bound
};

// REQUIRES: the texts of `dfa` are UTF-8. RESOURCE_EXHAUSTED past the limits of dfa_minimizer.h.
absl::StatusOr<ByteDfa> CountCharacters(const ByteDfa& dfa, const CharacterCounts& counts);

}  // namespace specd::grammar
