// DecodeStatement gives a statement its handler and its slots.
//
// An instruction, a modifier or an operand that the machine does not know is an error of `slots`
// with file and line; none is skipped. After an error the instruction means nothing.
#pragma once

#include "tests/gpu/ptx/machine/operand_slots.h"
#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

Instruction DecodeStatement(const FunctionText& text, const Module& module,
                            const Statement& statement, OperandSlots* slots);

}  // namespace specd::ptx
