// SmallerConstraints lists the ways to make a constraint a step smaller, to find the core of a bad
// one.
//
// A schema loses a member or an item, or a subschema takes the place of the one around it. Other
// texts lose some characters. The largest steps come first. Any thread may call.
#pragma once

#include <string>
#include <vector>

#include "speculative/grammar/base/grammar_request.h"

namespace specd::grammar {

// Each is shorter than request.text. None: the text cannot be made smaller.
std::vector<std::string> SmallerConstraints(const GrammarRequest& request);

}  // namespace specd::grammar
