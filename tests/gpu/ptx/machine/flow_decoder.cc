#include <fmt/format.h>

#include "tests/gpu/ptx/machine/decoding.h"

namespace specd::ptx {

namespace {

// `call (result), callee, (arguments), prototype;` with params in all lists.
void DecodeCall(Decoding* decoding) {
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  instruction.flow = Flow::kCall;
  size_t i = 0;
  const auto offset_of = [&](const Operand& operand) {
    if (operand.param.has_value()) return *operand.param;
    slots.Fail(fmt::format("'{}' is no .param", operand.text));
    return 0;
  };
  if (slots.At(0).kind == Operand::Kind::kList) {
    if (slots.At(0).parts.size() != 1) slots.Fail("a call has one result at most");
    if (slots.status().ok()) instruction.returned = offset_of(slots.At(0).parts[0]);
    ++i;
  }
  const Operand& callee = slots.At(i++);
  if (callee.kind == Operand::Kind::kRegister) {
    instruction.sources[0] = slots.Source(callee, 8);
  } else if (const auto found = decoding->module.functions.find(callee.text);
             found != decoding->module.functions.end()) {
    instruction.callee = found->second.get();
  } else {
    slots.Fail(fmt::format("there is no function '{}'", callee.text));
  }
  if (i < decoding->statement.operands.size() && slots.At(i).kind == Operand::Kind::kList) {
    for (const Operand& argument : slots.At(i).parts) {
      instruction.arguments.push_back(offset_of(argument));
    }
  }
}

}  // namespace

// PTX ISA, "Control Flow Instructions".
bool DecodeFlow(Decoding* decoding) {
  OperandSlots& slots = decoding->slots;
  Modifiers& modifiers = decoding->modifiers;
  Instruction& instruction = decoding->instruction;
  const std::string& base = modifiers.base();
  if (base == "bra") {
    modifiers.Take("uni");  // a hint
    instruction.flow = Flow::kBranch;
    const auto label = decoding->text.labels.find(slots.At(0).text);
    if (label == decoding->text.labels.end()) {
      slots.Fail(fmt::format("there is no label '{}'", slots.At(0).text));
    } else {
      instruction.target = static_cast<int32_t>(label->second);
    }
  } else if (base == "ret" || base == "exit") {
    modifiers.Take("uni");
    instruction.flow = Flow::kReturn;
    if (base == "exit" && !decoding->text.is_entry) slots.Fail("exit outside an entry");
  } else if (base == "trap") {
    instruction.flow = Flow::kTrap;
  } else if (base == "call") {
    modifiers.Take("uni");
    DecodeCall(decoding);
  } else {
    return false;
  }
  return true;
}

}  // namespace specd::ptx
