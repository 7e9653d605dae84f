// The handlers of instructions that touch memory. PTX ISA, "Data Movement and Conversion
// Instructions: ld, st" and "Parallel Synchronization and Communication Instructions: atom, red".
//
// Each access is checked: alignment, the bounds of its memory, bytes of shared or local memory that
// were never written, and races (race_checker.h). ld.local, ld.param and their stores are in
// own_memory_opcodes.h.
#pragma once

#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

void Load(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void Store(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

// atom.op and red.op of words or doublewords; null for one that is not known. `type` is PTX's.
Handler FindAtomic(std::string_view op, std::string_view type);

}  // namespace specd::ptx
