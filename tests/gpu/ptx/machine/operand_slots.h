// OperandSlots turns the operands of a function's statements into slots for the decoder.
//
// It checks the width of every register against what the instruction takes, and keeps the first
// error with file and line. Numbers become constants, which have a slot too.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/register_slots.h"
#include "tests/gpu/ptx/machine/syntax.h"

namespace specd::ptx {

class OperandSlots {
 public:
  // Constants are put into the function.
  OperandSlots(const FunctionText& text, const Module& module, Function* function);

  // The errors that follow are about this statement.
  void SetStatement(const Statement& statement) { statement_ = &statement; }
  void Fail(const std::string& what);
  const absl::Status& status() const { return status_; }

  // The i-th operand of the statement; an empty one, and an error, if there are fewer.
  const Operand& At(size_t i);
  void CheckCount(size_t count);

  // The bytes of a register, or -1 if the operand is none.
  int BytesOf(const Operand& operand) const;
  // The slot of a register that is written, of exactly so many bytes.
  int32_t Result(const Operand& operand, int size_bytes);
  // The slot of a register or number that is read; kPredicateBytes is a predicate. Registers of up
  // to 32 bits stand for each other, as PTX allows where bits are meant.
  int32_t Source(const Operand& operand, int size_bytes);
  int32_t Guard(int reg, bool is_negated) const;

  // FindStoredAlone
  bool IsStoredAlone(const Operand& operand) const;
  // The number of a register among the values of its function (Function::num_values).
  int32_t ValueOf(int reg) const;

  int32_t Constant(uint64_t value, int size_bytes);
  // The value of a name: an address or, in shared memory, an offset.
  uint64_t ValueOfName(const std::string& name);

 private:
  int32_t Predicate(const Operand& operand);

  const FunctionText& text_;
  const Module& module_;
  Function& function_;
  const RegisterSlots slots_;
  const std::vector<bool> stored_alone_;
  const Statement* statement_ = nullptr;
  std::map<std::pair<uint64_t, int>, int32_t> constants_;
  absl::Status status_ = absl::OkStatus();
};

// A number of so many bytes: `-1`, `0x1F`, `0f3F800000` (bits of a float), `0d...` (of a double).
uint64_t ParseNumber(const std::string& text, int size_bytes);

}  // namespace specd::ptx
