// PrintJson writes a JsonValue as text, for schemas that the judge of grammars draws and shrinks.
//
// There is no space between tokens, and the order of members is kept. Any thread may call.
#pragma once

#include <string>

#include "speculative/grammar/base/json_value.h"

namespace specd::grammar {

std::string PrintJson(const JsonValue& value);

}  // namespace specd::grammar
