#include "tests/gpu/ptx/machine/register_slots.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

namespace {

constexpr int kNotSeen = -2;
constexpr int kSeveralBlocks = -1;

// Opcodes whose first operand is read, if at all.
bool WritesNothing(std::string_view opcode) {
  for (const std::string_view prefix : {"st.", "red.", "bar", "call", "bra", "prefetch", "fence"}) {
    if (opcode.starts_with(prefix)) return true;
  }
  return false;
}

void AddUses(const Operand& operand, bool is_definition, std::vector<RegisterUse>* uses) {
  if (operand.kind == Operand::Kind::kAddress) is_definition = false;
  if (operand.reg != kNoRegister) uses->push_back({operand.reg, is_definition});
  if (operand.second_reg != kNoRegister) uses->push_back({operand.second_reg, is_definition});
  for (const Operand& part : operand.parts) AddUses(part, is_definition, uses);
}

class SlotAssigner {
 public:
  explicit SlotAssigner(const FunctionText& function)
      : function_(function), lives_(function.registers.size()) {
    result_.slots.assign(function.registers.size(), kNoSlot);
  }

  RegisterSlots Run() {
    FindLives();
    for (size_t i = 0; i < lives_.size(); ++i) {
      if (lives_[i].block == kNotSeen) continue;
      if (function_.registers[i] == kPredicateBytes) {
        result_.slots[i] = result_.num_predicates++;
      } else if (!lives_[i].IsShort()) {
        result_.slots[i] = Take(function_.registers[i]);
      }
    }
    for (size_t i = 0; i < function_.statements.size(); ++i) AssignShort(i);
    result_.size_bytes = (result_.size_bytes + 63) / 64 * 64;
    return std::move(result_);
  }

 private:
  struct Life {
    int block = kNotSeen;
    bool begins_with_definition = false;
    size_t last = 0;  // the last statement that names it

    // Whether the register is dead outside one basic block.
    bool IsShort() const { return block >= 0 && begins_with_definition; }
  };

  std::vector<bool> BlockBegins() const {
    std::vector<bool> begins(function_.statements.size() + 1, false);
    for (const auto& [name, statement] : function_.labels) begins[statement] = true;
    for (size_t i = 0; i < function_.statements.size(); ++i) {
      if (function_.statements[i].opcode.starts_with("bra")) begins[i + 1] = true;
    }
    return begins;
  }

  void FindLives() {
    const std::vector<bool> begins = BlockBegins();
    int block = 0;
    for (size_t i = 0; i < function_.statements.size(); ++i) {
      if (begins[i]) ++block;
      const Statement& statement = function_.statements[i];
      for (const RegisterUse& use : UsesOf(statement)) {
        Life& life = lives_[static_cast<size_t>(use.reg)];
        if (life.block == kNotSeen) {
          life.block = block;
          // A guarded write leaves the register of other lanes as it was.
          life.begins_with_definition = use.is_definition && statement.guard == kNoRegister;
        } else if (life.block != block) {
          life.block = kSeveralBlocks;
        }
        life.last = i;
      }
    }
  }

  void AssignShort(size_t statement) {
    std::vector<int> ended;
    for (const RegisterUse& use : UsesOf(function_.statements[statement])) {
      const auto reg = static_cast<size_t>(use.reg);
      if (function_.registers[reg] == kPredicateBytes || !lives_[reg].IsShort()) continue;
      if (result_.slots[reg] == kNoSlot) result_.slots[reg] = Take(function_.registers[reg]);
      if (lives_[reg].last == statement) ended.push_back(use.reg);
    }
    std::sort(ended.begin(), ended.end());
    ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
    for (const int reg : ended) {
      FreeOf(function_.registers[static_cast<size_t>(reg)])
          .push_back(result_.slots[static_cast<size_t>(reg)]);
    }
  }

  std::vector<int32_t>& FreeOf(int size_bytes) { return size_bytes == 8 ? free_wide_ : free_; }

  int32_t Take(int size_bytes) {
    std::vector<int32_t>& free = FreeOf(size_bytes);
    if (!free.empty()) {
      const int32_t slot = free.back();
      free.pop_back();
      return slot;
    }
    const int32_t slot = result_.size_bytes;
    result_.size_bytes += kLanes * (size_bytes == 8 ? 8 : 4);
    return slot;
  }

  const FunctionText& function_;
  std::vector<Life> lives_;
  RegisterSlots result_;
  std::vector<int32_t> free_;       // of 4 bytes for a lane
  std::vector<int32_t> free_wide_;  // of 8
};

}  // namespace

std::vector<RegisterUse> UsesOf(const Statement& statement) {
  std::vector<RegisterUse> uses;
  const bool writes = !WritesNothing(statement.opcode) && !statement.operands.empty();
  for (size_t i = writes ? 1 : 0; i < statement.operands.size(); ++i) {
    AddUses(statement.operands[i], false, &uses);
  }
  if (statement.guard != kNoRegister) uses.push_back({statement.guard, false});
  if (writes) AddUses(statement.operands[0], true, &uses);
  return uses;
}

std::vector<bool> FindStoredAlone(const FunctionText& function) {
  std::vector<bool> stored_alone(function.registers.size(), true);
  for (const Statement& statement : function.statements) {
    Statement without_value = statement;
    if (statement.opcode.starts_with("st.")) without_value.operands.resize(1);
    for (const RegisterUse& use : UsesOf(without_value)) {
      if (!use.is_definition) stored_alone[static_cast<size_t>(use.reg)] = false;
    }
  }
  return stored_alone;
}

RegisterSlots AssignSlots(const FunctionText& function) { return SlotAssigner(function).Run(); }

}  // namespace specd::ptx
