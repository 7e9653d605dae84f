#include "tests/gpu/ptx/machine/opcodes.h"

namespace specd::ptx {

const Opcode* FindOpcode(const std::string& name) {
  static const OpcodeTable* const table = [] {
    auto* const made = new OpcodeTable;
    AddIntegerOpcodes(made);
    AddCarryOpcodes(made);
    AddBitOpcodes(made);
    AddFloatOpcodes(made);
    AddConversionOpcodes(made);
    AddComparisonOpcodes(made);
    return made;
  }();
  const auto found = table->find(name);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace specd::ptx
