// DrawPattern and DrawEbnf draw random regular expressions and grammars for the judge of grammars.
//
// Most are valid, and some are not. Repetitions nest and have counts up to 65535. One thread at a
// time for each Dice.
#pragma once

#include <string>

#include "tests/fuzz/judge/dice.h"

namespace specd::grammar {

std::string DrawPattern(Dice* dice);
// A pattern of a few characters, for the inside of a schema.
std::string DrawShortPattern(Dice* dice);
// Rules; the first is `root`.
std::string DrawEbnf(Dice* dice);

}  // namespace specd::grammar
