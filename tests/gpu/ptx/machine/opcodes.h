// FindOpcode gives the meaning of an instruction that computes on registers alone.
//
// The tables are in *_opcodes.cc, one for each chapter of the manual; each entry is below the name
// of its section. The machine's comments cite "PTX ISA" for NVIDIA's manual "Parallel Thread
// Execution ISA Version 9.0". An opcode's name holds all modifiers, and a name that is not in a
// table is refused. The instructions that touch memory or bring lanes together are in
// memory_opcodes.h and together_opcodes.h.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

struct Opcode {
  Handler run = nullptr;
  int result_bytes = 0;           // of a lane; kPredicateBytes is a predicate
  std::vector<int> source_bytes;  // the same
};

// Follows the name of a conversion whose source register has 64 bits and whose source type has
// fewer.
inline constexpr char kOfWideRegister[] = " of a wide register";

using OpcodeTable = std::unordered_map<std::string, Opcode>;

void AddIntegerOpcodes(OpcodeTable* table);
void AddCarryOpcodes(OpcodeTable* table);
void AddBitOpcodes(OpcodeTable* table);
void AddFloatOpcodes(OpcodeTable* table);
void AddConversionOpcodes(OpcodeTable* table);
void AddComparisonOpcodes(OpcodeTable* table);

// The name, which stays, and the meaning. Null for an instruction that no table holds.
const OpcodeTable::value_type* FindOpcode(const std::string& name);

}  // namespace specd::ptx
