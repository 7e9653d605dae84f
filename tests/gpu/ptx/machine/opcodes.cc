#include "tests/gpu/ptx/machine/opcodes.h"

namespace specd::ptx {

namespace {

const OpcodeTable& AllOpcodes() {
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
  return *table;
}

}  // namespace

const OpcodeTable::value_type* FindOpcode(const std::string& name) {
  const auto found = AllOpcodes().find(name);
  return found == AllOpcodes().end() ? nullptr : &*found;
}

}  // namespace specd::ptx
