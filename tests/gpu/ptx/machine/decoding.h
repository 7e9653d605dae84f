// Decoding is a statement on its way to an instruction, and the functions below know one kind of
// instructions each.
//
// Each function returns false if the statement is none of its kind. An operand or a value of a
// modifier that it does not know is an error of `slots`; modifiers that it leaves are refused by
// StatementDecoder.
#pragma once

#include "tests/gpu/ptx/machine/modifiers.h"
#include "tests/gpu/ptx/machine/operand_slots.h"
#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

struct Decoding {
  const FunctionText& text;
  const Module& module;
  const Statement& statement;
  OperandSlots& slots;
  Modifiers modifiers;
  Instruction instruction;
};

// `.cta`, `.cluster`, `.gpu` or `.sys`. PTX ISA, "Memory Consistency Model: Scope".
Scope TakeScope(Modifiers* modifiers);

// PTX ISA, "Control Flow Instructions".
bool DecodeFlow(Decoding* decoding);
// Instructions that bring the lanes of a warp together: shfl.sync, vote.sync, redux.sync,
// bar.warp.sync.
bool DecodeTogether(Decoding* decoding);
// bar, barrier.cluster, fence, membar, griddepcontrol.
bool DecodeBarrier(Decoding* decoding);
// ld, st
bool DecodeAccess(Decoding* decoding);
// atom, red
bool DecodeAtomic(Decoding* decoding);
// mov
bool DecodeMove(Decoding* decoding);
// cvta, mapa
bool DecodeAddress(Decoding* decoding);
// Instructions that compute on registers alone (opcodes.h).
bool DecodeComputation(Decoding* decoding);

}  // namespace specd::ptx
