// DrawConstraint draws a random constraint from a seed, for the judge of grammars.
//
// The constraints are meant to be hard: schemas that refer to themselves, counts that are huge,
// repetitions within repetitions, rules that begin with themselves. The same kind and seed give the
// same constraint on every machine. Any thread may call.
//
//   const GrammarRequest request = DrawConstraint(GrammarKind::kJsonSchema, 7);
#pragma once

#include <cstdint>

#include "speculative/grammar/base/grammar_request.h"

namespace specd::grammar {

// REQUIRES: kind is kJsonSchema, kRegex, kEbnf, or kNone, where the seed chooses one of these.
GrammarRequest DrawConstraint(GrammarKind kind, uint64_t seed);

}  // namespace specd::grammar
