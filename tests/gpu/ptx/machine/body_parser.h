// ParseBody reads the body of a function, and the helpers below the variables of any scope.
//
// Errors stay in the reader (token_reader.h).
#pragma once

#include <vector>

#include "tests/gpu/ptx/machine/syntax.h"
#include "tests/gpu/ptx/machine/token_reader.h"

namespace specd::ptx {

// REQUIRES: the reader stands behind the opening brace. Variables of shared memory belong to the
// module.
void ParseBody(TokenReader* reader, FunctionText* function, std::vector<Variable>* shared);

// A declaration behind its state space: `.align 16 .b8 name[32]`.
Variable ParseDeclaration(TokenReader* reader);

// The same with initial values, up to the semicolon.
Variable ParseVariable(TokenReader* reader);

}  // namespace specd::ptx
