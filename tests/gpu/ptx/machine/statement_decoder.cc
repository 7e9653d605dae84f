#include "tests/gpu/ptx/machine/statement_decoder.h"

#include <fmt/format.h>

#include <mutex>
#include <set>
#include <string_view>

#include "tests/gpu/ptx/machine/decoding.h"

namespace specd::ptx {

namespace {

// A copy that stays, one for all instructions of a name.
std::string_view Kept(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return *names->insert(name).first;
}

}  // namespace

Instruction DecodeStatement(const FunctionText& text, const Module& module,
                            const Statement& statement, OperandSlots* slots) {
  slots->SetStatement(statement);
  Decoding decoding{.text = text,
                    .module = module,
                    .statement = statement,
                    .slots = *slots,
                    .modifiers = Modifiers(statement.opcode),
                    .instruction = {}};
  Instruction& instruction = decoding.instruction;
  instruction.line = statement.line;
  instruction.opcode = Kept(statement.opcode);
  instruction.op_class = OpClassOf(statement.opcode);
  for (const RegisterUse& use : UsesOf(statement)) {
    (use.is_definition ? instruction.writes : instruction.reads).push_back(slots->ValueOf(use.reg));
  }
  if (statement.guard != kNoRegister) {
    instruction.guard = slots->Guard(statement.guard, statement.is_guard_negated);
  }
  if (DecodeFlow(&decoding) || DecodeTogether(&decoding) || DecodeBarrier(&decoding) ||
      DecodeAccess(&decoding) || DecodeAtomic(&decoding) || DecodeMove(&decoding) ||
      DecodeAddress(&decoding)) {
    const std::string rest = decoding.modifiers.Rest();
    if (!rest.empty()) slots->Fail(fmt::format("unknown modifier .{}", rest));
  } else if (!DecodeComputation(&decoding)) {  // whose tables hold whole names
    slots->Fail("unknown instruction");
  }
  return std::move(decoding.instruction);
}

}  // namespace specd::ptx
