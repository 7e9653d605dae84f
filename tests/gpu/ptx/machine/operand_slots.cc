#include "tests/gpu/ptx/machine/operand_slots.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

namespace specd::ptx {

namespace {

constexpr int32_t kLeastSlotBytes = 4 * kLanes;

int SlotBytes(int size_bytes) { return size_bytes == 8 ? 8 : 4; }

}  // namespace

OperandSlots::OperandSlots(const FunctionText& text, const Module& module, Function* function)
    : text_(text),
      module_(module),
      function_(*function),
      slots_(AssignSlots(text)),
      stored_alone_(FindStoredAlone(text)) {
  function->register_bytes = slots_.size_bytes;
  function->num_predicates = slots_.num_predicates;
  function->num_values = slots_.size_bytes / kLeastSlotBytes + 1 + slots_.num_predicates;
}

void OperandSlots::Fail(const std::string& what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      fmt::format("{}:{}: {}: {}", module_.file, statement_->line, statement_->opcode, what));
}

const Operand& OperandSlots::At(size_t i) {
  static const Operand none;
  if (i < statement_->operands.size()) return statement_->operands[i];
  Fail(fmt::format("operand {} is missing", i + 1));
  return none;
}

void OperandSlots::CheckCount(size_t count) {
  if (statement_->operands.size() != count) {
    Fail(fmt::format("{} operands where {} are expected", statement_->operands.size(), count));
  }
}

int OperandSlots::BytesOf(const Operand& operand) const {
  return operand.reg == kNoRegister ? -1 : text_.registers[static_cast<size_t>(operand.reg)];
}

bool OperandSlots::IsStoredAlone(const Operand& operand) const {
  return operand.reg == kNoRegister || stored_alone_[static_cast<size_t>(operand.reg)];
}

int32_t OperandSlots::Result(const Operand& operand, int size_bytes) {
  if (operand.kind != Operand::Kind::kRegister || BytesOf(operand) != size_bytes) {
    Fail(fmt::format("the result goes to '{}', which is no register of {} bytes", operand.text,
                     size_bytes));
    return 0;
  }
  return slots_.slots[static_cast<size_t>(operand.reg)];
}

int32_t OperandSlots::Source(const Operand& operand, int size_bytes) {
  if (size_bytes == kPredicateBytes) return Predicate(operand);
  if (operand.kind == Operand::Kind::kNumber) {
    return Constant(ParseNumber(operand.text, size_bytes), size_bytes);
  }
  const int bytes = BytesOf(operand);
  if (bytes <= 0 || SlotBytes(bytes) != SlotBytes(size_bytes)) {
    Fail(fmt::format("'{}' is no operand of {} bytes", operand.text, size_bytes));
    return 0;
  }
  return slots_.slots[static_cast<size_t>(operand.reg)];
}

int32_t OperandSlots::Predicate(const Operand& operand) {
  if (operand.kind == Operand::Kind::kNumber) return operand.text == "0" ? 0 : 1;
  if (operand.kind != Operand::Kind::kRegister || BytesOf(operand) != kPredicateBytes) {
    Fail(fmt::format("'{}' is no predicate", operand.text));
    return 0;
  }
  return Guard(operand.reg, operand.is_negated);
}

int32_t OperandSlots::Guard(int reg, bool is_negated) const {
  return slots_.slots[static_cast<size_t>(reg)] | (is_negated ? kNegated : 0);
}

int32_t OperandSlots::ValueOf(int reg) const {
  const int32_t slot = slots_.slots[static_cast<size_t>(reg)];
  const bool is_predicate = text_.registers[static_cast<size_t>(reg)] == kPredicateBytes;
  return is_predicate ? slots_.size_bytes / kLeastSlotBytes + 1 + slot : slot / kLeastSlotBytes;
}

int32_t OperandSlots::Constant(uint64_t value, int size_bytes) {
  const int bytes = SlotBytes(size_bytes);
  const auto found = constants_.find({value, bytes});
  if (found != constants_.end()) return found->second;
  const size_t offset = function_.constants.size();
  function_.constants.resize(offset + static_cast<size_t>(kLanes * bytes));
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(&function_.constants[offset + static_cast<size_t>(lane * bytes)], &value,
                static_cast<size_t>(bytes));
  }
  const int32_t slot = ~static_cast<int32_t>(offset);
  constants_[{value, bytes}] = slot;
  return slot;
}

uint64_t OperandSlots::ValueOfName(const std::string& name) {
  if (const auto found = module_.globals.find(name); found != module_.globals.end()) {
    return reinterpret_cast<uint64_t>(found->second->begin());
  }
  if (const auto found = module_.functions.find(name); found != module_.functions.end()) {
    return reinterpret_cast<uint64_t>(found->second.get());
  }
  if (const auto found = module_.shared.find(name); found != module_.shared.end()) {
    return static_cast<uint64_t>(found->second);
  }
  Fail(fmt::format("'{}' is not declared", name));
  return 0;
}

uint64_t ParseNumber(const std::string& text, int size_bytes) {
  const bool is_float_bits = text.size() > 2 && text[0] == '0' &&
                             std::strchr("fFdD", text[1]) != nullptr &&
                             text.size() == (text[1] == 'f' || text[1] == 'F' ? 10u : 18u);
  if (is_float_bits) return std::strtoull(text.c_str() + 2, nullptr, 16);
  const uint64_t value = text[0] == '-'
                             ? static_cast<uint64_t>(std::strtoll(text.c_str(), nullptr, 0))
                             : std::strtoull(text.c_str(), nullptr, 0);
  return size_bytes >= 8 ? value : value & ((uint64_t{1} << (8 * size_bytes)) - 1);
}

}  // namespace specd::ptx
