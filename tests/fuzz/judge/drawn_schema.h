// DrawSchema draws a random JSON Schema for the judge of grammars, with every applicator there is.
//
// Subschemas refer to the root, to definitions, and to parts of the schema; definitions refer to
// each other and to themselves. Few names are used, so that subschemas meet. One thread at a time
// for each Dice.
#pragma once

#include "speculative/grammar/base/json_value.h"
#include "tests/fuzz/judge/dice.h"

namespace specd::grammar {

JsonValue DrawSchema(Dice* dice);

}  // namespace specd::grammar
