// FindOpcode gives the meaning of an instruction that computes on registers alone.
//
// The tables are in *_opcodes.cc, one for each chapter of the PTX ISA; each entry stands below the
// name of its section. A name holds all modifiers, and one that is not in a table is refused. The
// instructions that touch memory or bring lanes together are in memory_opcodes.h and
// together_opcodes.h.
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

// Behind the name of a conversion whose source register has 64 bits and whose source type has
// fewer.
inline constexpr char kOfWideRegister[] = " of a wide register";

using OpcodeTable = std::unordered_map<std::string, Opcode>;

void AddIntegerOpcodes(OpcodeTable* table);
void AddCarryOpcodes(OpcodeTable* table);
void AddBitOpcodes(OpcodeTable* table);
void AddFloatOpcodes(OpcodeTable* table);
void AddConversionOpcodes(OpcodeTable* table);
void AddComparisonOpcodes(OpcodeTable* table);

// Null for an instruction that no table holds.
const Opcode* FindOpcode(const std::string& name);

}  // namespace specd::ptx
