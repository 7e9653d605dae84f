#include <fmt/format.h>

#include "tests/gpu/ptx/machine/decoding.h"
#include "tests/gpu/ptx/machine/memory_opcodes.h"
#include "tests/gpu/ptx/machine/own_memory_opcodes.h"
#include "tests/gpu/ptx/machine/parser.h"

namespace specd::ptx {

namespace {

// `.global`, `.shared::cta`, `.param` and so on; none is generic.
Space TakeSpace(Modifiers* modifiers) {
  if (modifiers->Take("global") || modifiers->Take("const")) return Space::kGlobal;
  if (modifiers->Take("local")) return Space::kLocal;
  for (const char* const name : {"shared", "shared::cta", "shared::cluster"}) {
    if (modifiers->Take(name)) return Space::kShared;
  }
  for (const char* const name : {"param", "param::entry", "param::func"}) {
    if (modifiers->Take(name)) return Space::kParam;
  }
  return Space::kGeneric;
}

// The order and the scope of an access that names neither.
struct Strength {
  Order order;
  Scope scope;
};

// PTX ISA, "Memory Consistency Model". A volatile access is a relaxed one of the whole system.
void SetStrength(Decoding* decoding, Strength strength) {
  Modifiers& modifiers = decoding->modifiers;
  MemoryAccess& access = decoding->instruction.access;
  if (modifiers.Take("volatile")) strength = {Order::kRelaxed, Scope::kDevice};
  access.order = modifiers.Take("weak")      ? Order::kWeak
                 : modifiers.Take("relaxed") ? Order::kRelaxed
                 : modifiers.Take("acquire") ? Order::kAcquire
                 : modifiers.Take("release") ? Order::kRelease
                 : modifiers.Take("acq_rel") ? Order::kBoth
                                             : strength.order;
  access.scope = TakeScope(&modifiers);
  if (access.scope == Scope::kNone) access.scope = strength.scope;
  if ((access.order == Order::kWeak) != (access.scope == Scope::kNone)) {
    decoding->slots.Fail("a strong access has a scope, and a weak one has none");
  }
}

void SetAddress(Decoding* decoding, const Operand& operand) {
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  MemoryAccess& access = instruction.access;
  instruction.immediate = operand.offset;
  if (operand.reg != kNoRegister) {
    access.address_bytes = static_cast<uint8_t>(slots.BytesOf(operand));
    // Addresses of 32 bits are those of shared memory. That of a param is one of local memory.
    if (access.space == Space::kParam) access.space = Space::kLocal;
    if (access.address_bytes != 8 &&
        (access.address_bytes != 4 || access.space != Space::kShared)) {
      slots.Fail("an address has 8 bytes, or 4 in shared memory");
    }
    instruction.sources[0] = slots.Source(operand, access.address_bytes);
  } else if (access.space == Space::kParam) {
    if (!operand.param.has_value()) slots.Fail(fmt::format("'{}' is no .param", operand.text));
    instruction.immediate += operand.param.value_or(0);
  } else {
    instruction.immediate += static_cast<int64_t>(slots.ValueOfName(operand.text));
  }
}

// Values may be wider than the elements ("Operand Size Exceeding Instruction-Type Size"); all have
// one width.
void SetValues(Decoding* decoding, const Operand& operand, bool is_load) {
  OperandSlots& slots = decoding->slots;
  MemoryAccess& access = decoding->instruction.access;
  const std::vector<Operand> one = {operand};
  const bool is_vector = operand.kind == Operand::Kind::kVector;
  const std::vector<Operand>& values = is_vector ? operand.parts : one;
  if (values.size() != access.num_elements) {
    return slots.Fail(fmt::format("{} values of {}", values.size(), access.num_elements));
  }
  int register_bytes = 0;
  for (const Operand& value : values) {
    register_bytes = std::max(register_bytes, slots.BytesOf(value));
  }
  const bool has_register = register_bytes > 0;
  if (!has_register) register_bytes = access.element_bytes == 8 ? 8 : 4;
  access.register_bytes = static_cast<uint8_t>(register_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_load && slots.IsStoredAlone(values[i])) access.copied |= uint8_t{1} << i;
    if (is_load && values[i].text == "_") {
      access.values[i] = kNoOperand;
    } else {
      access.values[i] = is_load ? slots.Result(values[i], register_bytes)
                                 : slots.Source(values[i], register_bytes);
    }
  }
  if (has_register && register_bytes < access.element_bytes) slots.Fail("the registers are narrow");
}

}  // namespace

Scope TakeScope(Modifiers* modifiers) {
  if (modifiers->Take("cta")) return Scope::kBlock;
  if (modifiers->Take("cluster")) return Scope::kCluster;
  return modifiers->Take("gpu") || modifiers->Take("sys") ? Scope::kDevice : Scope::kNone;
}

bool DecodeAccess(Decoding* decoding) {
  Modifiers& modifiers = decoding->modifiers;
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  const bool is_load = modifiers.base() == "ld";
  if (!is_load && modifiers.base() != "st") return false;
  MemoryAccess& access = instruction.access;
  access.space = TakeSpace(&modifiers);
  SetStrength(decoding, {Order::kWeak, Scope::kNone});
  // "Cache Operators": hints alone.
  for (const char* const hint : {"ca", "cg", "cs", "wb"}) modifiers.Take(hint);
  if (is_load) modifiers.Take("nc");  // by way of a cache, of memory that nothing writes
  access.num_elements = modifiers.Take("v2") ? 2 : modifiers.Take("v4") ? 4 : 1;
  const std::string type = modifiers.TakeFirst();
  const int bytes = BytesOfType(type);
  if (bytes <= 0) slots.Fail(fmt::format("unknown type '{}'", type));
  access.element_bytes = static_cast<uint8_t>(std::max(bytes, 1));
  access.is_signed = type.starts_with('s');
  slots.CheckCount(2);
  SetAddress(decoding, slots.At(is_load ? 1 : 0));
  SetValues(decoding, slots.At(is_load ? 0 : 1), is_load);
  const bool is_own = access.space == Space::kLocal || access.space == Space::kParam;
  if (is_own) {
    instruction.run = is_load ? FindOwnLoad(access) : FindOwnStore(access);
  } else {
    instruction.run = is_load ? &Load : &Store;
  }
  return true;
}

bool DecodeAtomic(Decoding* decoding) {
  Modifiers& modifiers = decoding->modifiers;
  OperandSlots& slots = decoding->slots;
  Instruction& instruction = decoding->instruction;
  const bool has_result = modifiers.base() == "atom";
  if (!has_result && modifiers.base() != "red") return false;
  MemoryAccess& access = instruction.access;
  access.space = TakeSpace(&modifiers);
  SetStrength(decoding, {Order::kRelaxed, Scope::kDevice});  // "atom": .relaxed.gpu without others
  const std::string op = modifiers.TakeFirst();
  const std::string type = modifiers.TakeFirst();
  const int bytes = BytesOfType(type);
  instruction.run = bytes == 4 || bytes == 8 ? FindAtomic(op, type) : nullptr;
  if (instruction.run == nullptr) slots.Fail(fmt::format("unknown operation {}.{}", op, type));
  access.element_bytes = static_cast<uint8_t>(bytes == 8 ? 8 : 4);
  const size_t first = has_result ? 1 : 0;
  slots.CheckCount(first + 2);
  if (has_result) instruction.result = slots.Result(slots.At(0), bytes);
  SetAddress(decoding, slots.At(first));
  instruction.sources[1] = slots.Source(slots.At(first + 1), bytes);
  return true;
}

}  // namespace specd::ptx
