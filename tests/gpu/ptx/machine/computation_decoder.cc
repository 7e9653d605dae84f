#include "tests/gpu/ptx/machine/decoding.h"
#include "tests/gpu/ptx/machine/opcodes.h"
#include "tests/gpu/ptx/machine/parser.h"

namespace specd::ptx {

bool DecodeComputation(Decoding* decoding) {
  OperandSlots& slots = decoding->slots;
  Modifiers& modifiers = decoding->modifiers;
  Instruction& instruction = decoding->instruction;
  const std::string& base = modifiers.base();
  std::string name = decoding->statement.opcode;
  // The destination and the source of a conversion have types of their own.
  if (base == "cvt" && slots.At(1).kind == Operand::Kind::kRegister &&
      slots.BytesOf(slots.At(1)) == 8 && BytesOfType(modifiers.type()) < 8) {
    name += kOfWideRegister;
  }
  const auto* const found = FindOpcode(name);
  if (found == nullptr) return false;
  const Opcode& opcode = found->second;
  slots.CheckCount(1 + opcode.source_bytes.size());
  instruction.opcode = found->first;
  instruction.run = opcode.run;
  instruction.result = slots.Result(slots.At(0), opcode.result_bytes);
  for (size_t i = 0; i < opcode.source_bytes.size(); ++i) {
    instruction.sources[i] = slots.Source(slots.At(i + 1), opcode.source_bytes[i]);
  }
  return true;
}

}  // namespace specd::ptx
