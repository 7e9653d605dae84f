// PTX ISA, "Data Movement and Conversion Instructions: mov, cvta, mapa".
#include <fmt/format.h>

#include "tests/gpu/ptx/machine/decoding.h"
#include "tests/gpu/ptx/machine/move_opcodes.h"
#include "tests/gpu/ptx/machine/parser.h"

namespace specd::ptx {

namespace {

// `mov.b64 {low, high}, whole;`
void DecodeUnpacking(Decoding* decoding, const Operand& to, const Operand& from, int bytes) {
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  if (to.parts.size() != 2 || (bytes != 4 && bytes != 8)) {
    return slots.Fail("only two halves of 4 or 8 bytes are known");
  }
  for (size_t i = 0; i < 2; ++i) {
    const bool is_dropped = to.parts[i].text == "_";
    instruction.access.values[i] = is_dropped ? kNoOperand : slots.Result(to.parts[i], bytes / 2);
  }
  instruction.sources[0] = slots.Source(from, bytes);
  instruction.run = bytes == 8 ? &UnpackWords : &UnpackHalves;
}

// `mov.b64 whole, {low, high};`
void DecodePacking(Decoding* decoding, const Operand& to, const Operand& from, int bytes) {
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  if (from.parts.size() != 2 || (bytes != 4 && bytes != 8)) {
    return slots.Fail("only two halves of 4 or 8 bytes are known");
  }
  instruction.result = slots.Result(to, bytes);
  for (size_t i = 0; i < 2; ++i) {
    instruction.sources[i] = slots.Source(from.parts[i], bytes / 2);
  }
  instruction.run = bytes == 8 ? &PackWords : &PackHalves;
}

// A special register, or the address of a variable or a function.
void DecodeName(Decoding* decoding, const Operand& to, const Operand& from, int bytes) {
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  instruction.result = slots.Result(to, bytes);
  instruction.immediate = from.offset;
  if (from.text.starts_with('%')) {
    instruction.run = FindSpecialRegister(from.text);
    if (instruction.run == nullptr || bytes != 4) {
      slots.Fail(fmt::format("unknown special register {} of {} bytes", from.text, bytes));
    }
    return;
  }
  const auto local = decoding->text.locals.find(from.text);
  if (local != decoding->text.locals.end() || from.param.has_value()) {
    const bool is_local = local != decoding->text.locals.end();
    instruction.immediate += is_local ? local->second : *from.param;
    instruction.run = is_local ? &MoveLocalAddress : &MoveParamAddress;
    if (bytes != 8) slots.Fail("an address has 8 bytes");
    return;
  }
  const uint64_t value = slots.ValueOfName(from.text) + static_cast<uint64_t>(from.offset);
  instruction.sources[0] = slots.Constant(value, bytes);
  instruction.run = bytes == 8 ? &MoveDoubleword : &MoveWord;
}

}  // namespace

// "mov"
bool DecodeMove(Decoding* decoding) {
  if (decoding->modifiers.base() != "mov" || decoding->modifiers.type() == "pred") return false;
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  const std::string type = decoding->modifiers.TakeFirst();
  const int bytes = BytesOfType(type);
  if (bytes < 2) slots.Fail(fmt::format("unknown type '{}'", type));
  slots.CheckCount(2);
  const Operand& to = slots.At(0);
  const Operand& from = slots.At(1);
  if (to.kind == Operand::Kind::kVector) {
    DecodeUnpacking(decoding, to, from, bytes);
  } else if (from.kind == Operand::Kind::kVector) {
    DecodePacking(decoding, to, from, bytes);
  } else if (from.kind == Operand::Kind::kName) {
    DecodeName(decoding, to, from, bytes);
  } else {
    instruction.result = slots.Result(to, bytes);
    instruction.sources[0] = slots.Source(from, bytes);
    instruction.run = bytes == 8 ? &MoveDoubleword : &MoveWord;
  }
  return true;
}

// "cvta" and "mapa"
bool DecodeAddress(Decoding* decoding) {
  Modifiers& modifiers = decoding->modifiers;
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  if (modifiers.base() == "cvta") {
    const bool is_to_space = modifiers.Take("to");
    const std::string space = modifiers.TakeFirst();
    modifiers.Take("u64");
    slots.CheckCount(2);
    instruction.run = FindAddressConversion(space == "local"    ? Space::kLocal
                                            : space == "shared" ? Space::kShared
                                            : space == "global" ? Space::kGlobal
                                                                : Space::kGeneric,
                                            is_to_space);
    if (instruction.run == nullptr) slots.Fail(fmt::format("unknown state space '{}'", space));
    instruction.result = slots.Result(slots.At(0), 8);
    instruction.sources[0] = slots.Source(slots.At(1), 8);
    return true;
  }
  if (modifiers.base() != "mapa") return false;
  const bool is_shared = modifiers.Take("shared::cluster");
  const int bytes = is_shared ? 4 : 8;
  if (!modifiers.Take(is_shared ? "u32" : "u64")) {
    slots.Fail("only .u32 of .shared::cluster and .u64 of a generic address are known");
  }
  slots.CheckCount(3);
  instruction.run = is_shared ? &MapSharedAddress : &MapGenericAddress;
  instruction.result = slots.Result(slots.At(0), bytes);
  const Operand& from = slots.At(1);
  instruction.sources[0] = from.kind == Operand::Kind::kName
                               ? slots.Constant(slots.ValueOfName(from.text), bytes)
                               : slots.Source(from, bytes);
  instruction.sources[1] = slots.Source(slots.At(2), 4);
  return true;
}

}  // namespace specd::ptx
