// The parts of a PTX module as the parser reads them, before the decoder gives them a meaning.
//
// Names are resolved as far as scopes reach: a register is an index into FunctionText::registers,
// and a name of a .param in scope carries its offset. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace specd::ptx {

inline constexpr int kNoRegister = -1;

struct Operand {
  enum class Kind { kRegister, kNumber, kName, kVector, kAddress, kList };
  Kind kind = Kind::kName;
  std::string text;
  int reg = kNoRegister;         // of kRegister, and the base of kAddress
  int second_reg = kNoRegister;  // the predicate of `d|p`
  bool is_negated = false;       // `!p`
  int64_t offset = 0;            // of kAddress and kName
  std::optional<int32_t> param;  // the offset of the .param that the text names
  std::vector<Operand> parts;    // of kVector `{a, b}` and kList `(a, b)`
};

struct Statement {
  std::string opcode;  // with its modifiers
  int guard = kNoRegister;
  bool is_guard_negated = false;
  std::vector<Operand> operands;
  int line = 0;
};

// A variable of any state space but .reg.
struct Variable {
  std::string name;
  int32_t alignment = 1;
  int32_t element_bytes = 0;
  int32_t size_bytes = 0;
  std::vector<std::string> values;  // the initial ones: numbers and names
  int line = 0;
};

struct Param {
  std::string name;
  int32_t offset = 0;
  int32_t size_bytes = 0;
};

inline constexpr int kPredicateBytes = 0;  // the size of a predicate register, as the parser has it

struct FunctionText {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Param> params;
  std::vector<Param> results;
  int32_t param_bytes = 0;                // with those of the calls in the body
  std::vector<int> registers;             // the bytes of each
  std::map<std::string, int32_t> locals;  // offsets of .local variables
  int32_t local_bytes = 0;
  std::map<std::string, size_t> labels;  // the statement behind each
  std::vector<Statement> statements;
  int line = 0;
};

struct ModuleText {
  std::string file;
  std::vector<Variable> globals;  // .global and .const
  std::vector<Variable> shared;
  std::vector<FunctionText> functions;
};

}  // namespace specd::ptx
