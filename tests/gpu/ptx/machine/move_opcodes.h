// The handlers of instructions that move values and addresses: mov, cvta, mapa. PTX ISA, "Data
// Movement and Conversion Instructions".
#pragma once

#include <string_view>

#include "tests/gpu/ptx/machine/frame.h"
#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

void MoveWord(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void MoveDoubleword(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

// mov of two registers into one twice as wide, and back into access.values.
void PackHalves(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void PackWords(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void UnpackHalves(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void UnpackWords(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

// mov of a special register such as %tid.x; null for one that is not known. PTX ISA, "Special
// Registers".
Handler FindSpecialRegister(std::string_view name);

// mov of the address of a .local variable, and of a .param: one of local memory. `immediate` is the
// offset in the function's memory.
void MoveLocalAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void MoveParamAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

// cvta converts an address of a state space to a generic one, and cvta.to converts it back. In
// global memory both are the same.
Handler FindAddressConversion(Space space, bool is_to_space);

// mapa: the address that a variable in shared memory has in another block of the cluster. From an
// address of shared memory to one of .shared::cluster, and from a generic one to a generic one.
void MapSharedAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);
void MapGenericAddress(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes);

}  // namespace specd::ptx
