#include "tests/gpu/ptx/machine/body_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <utility>

#include "tests/gpu/ptx/machine/parser.h"

namespace specd::ptx {

namespace {

int32_t RoundUp(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-');
}

class BodyParser {
 public:
  BodyParser(TokenReader* reader, FunctionText* function, std::vector<Variable>* shared)
      : reader_(*reader), function_(*function), shared_(*shared) {
    scopes_.emplace_back();
    for (const auto* list : {&function->params, &function->results}) {
      for (const Param& param : *list) scopes_[0].params[param.name] = param.offset;
    }
    call_begin_ = call_end_ = RoundUp(function->param_bytes, 16);
  }

  void Run() {
    while (!reader_.AtEnd() && !scopes_.empty()) ParseOne();
    if (!scopes_.empty()) reader_.Fail("the text ends too early");
  }

 private:
  struct Scope {
    std::unordered_map<std::string, int> registers;
    std::map<std::string, int32_t> params;
  };

  void ParseOne() {
    if (reader_.TakeIf("{")) {
      scopes_.emplace_back();
      // The params of a call lie in a block of their own; calls use the same memory in turn.
      if (scopes_.size() == 2) call_end_ = call_begin_;
    } else if (reader_.TakeIf("}")) {
      scopes_.pop_back();
    } else if (reader_.IsDirective()) {
      ParseDirective(reader_.Next());
    } else if (reader_.TakeIf(";")) {
    } else if (reader_.Peek(1) == ":") {
      ParseLabel();
    } else {
      ParseStatement();
    }
  }

  void ParseDirective(const std::string& word) {
    if (word == ".reg") {
      ParseRegisters();
    } else if (word == ".local") {
      const Variable variable = ParseVariable(&reader_);
      function_.local_bytes = RoundUp(function_.local_bytes, variable.alignment);
      function_.locals[variable.name] = function_.local_bytes;
      function_.local_bytes += variable.size_bytes;
    } else if (word == ".shared") {
      shared_.push_back(ParseVariable(&reader_));
    } else if (word == ".param") {
      const Variable variable = ParseVariable(&reader_);
      call_end_ = RoundUp(call_end_, 16);
      scopes_.back().params[variable.name] = call_end_;
      call_end_ += variable.size_bytes;
      function_.param_bytes = std::max(function_.param_bytes, call_end_);
    } else if (word == ".pragma") {  // a hint
      reader_.SkipBehind(";");
    } else {
      reader_.Fail(fmt::format("unknown directive {}", word));
    }
  }

  // `.reg .b32 %r<10>;` declares %r0 to %r9.
  void ParseRegisters() {
    const std::string type = reader_.Next();
    const int size_bytes = BytesOfType(type.empty() ? type : type.substr(1));
    if (size_bytes < 0) reader_.Fail(fmt::format("unknown type {} of a register", type));
    do {
      const std::string name = reader_.Next();
      if (!reader_.TakeIf("<")) {
        Declare(name, size_bytes);
        continue;
      }
      const int64_t count = reader_.NextNumber();
      reader_.Expect(">");
      for (int64_t i = 0; i < count; ++i) Declare(name + std::to_string(i), size_bytes);
    } while (reader_.TakeIf(","));
    reader_.Expect(";");
  }
  void Declare(const std::string& name, int size_bytes) {
    scopes_.back().registers[name] = static_cast<int>(function_.registers.size());
    function_.registers.push_back(size_bytes);
  }

  void ParseLabel() {
    const std::string name = reader_.Next();
    reader_.Expect(":");
    // The prototype of an indirect call: the callee's own params say the same.
    if (reader_.Is(".callprototype")) return reader_.SkipBehind(";");
    function_.labels[name] = function_.statements.size();
  }

  int FindRegister(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].registers.find(name);
      if (found != scopes_[i].registers.end()) return found->second;
    }
    return kNoRegister;
  }
  std::optional<int32_t> FindParam(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].params.find(name);
      if (found != scopes_[i].params.end()) return found->second;
    }
    return std::nullopt;
  }

  void ParseStatement() {
    Statement statement;
    statement.line = reader_.line();
    if (reader_.TakeIf("@")) {
      statement.is_guard_negated = reader_.TakeIf("!");
      statement.guard = FindRegister(reader_.Next());
      if (statement.guard == kNoRegister) reader_.Fail("a guard is no register");
    }
    statement.opcode = reader_.Next();
    while (!reader_.AtEnd() && !reader_.TakeIf(";")) {
      if (!reader_.TakeIf(",")) statement.operands.push_back(ParseOperand());
    }
    function_.statements.push_back(std::move(statement));
  }

  Operand ParseOperand() {
    if (reader_.TakeIf("{")) return ParseParts(Operand::Kind::kVector, "}");
    if (reader_.TakeIf("(")) return ParseParts(Operand::Kind::kList, ")");
    if (reader_.TakeIf("[")) return ParseAddress();
    const bool is_negated = reader_.TakeIf("!");
    Operand operand;
    operand.is_negated = is_negated;
    operand.text = reader_.Next();
    operand.reg = FindRegister(operand.text);
    if (operand.reg != kNoRegister) {
      operand.kind = Operand::Kind::kRegister;
      if (reader_.TakeIf("|")) operand.second_reg = FindRegister(reader_.Next());
    } else if (IsNumber(operand.text)) {
      operand.kind = Operand::Kind::kNumber;
    } else {
      operand.param = FindParam(operand.text);
      if (reader_.TakeIf("+")) operand.offset = reader_.NextNumber();
    }
    return operand;
  }
  Operand ParseParts(Operand::Kind kind, std::string_view end) {
    Operand operand;
    operand.kind = kind;
    while (!reader_.AtEnd() && !reader_.TakeIf(end)) {
      if (!reader_.TakeIf(",")) operand.parts.push_back(ParseOperand());
    }
    return operand;
  }
  // `[base]`, `[base+8]`, `[base-8]`.
  Operand ParseAddress() {
    Operand operand;
    operand.kind = Operand::Kind::kAddress;
    operand.text = reader_.Next();
    operand.reg = FindRegister(operand.text);
    operand.param = FindParam(operand.text);
    if (reader_.TakeIf("+") || reader_.Peek().starts_with('-')) {
      operand.offset = reader_.NextNumber();
    }
    reader_.Expect("]");
    return operand;
  }

  TokenReader& reader_;
  FunctionText& function_;
  std::vector<Variable>& shared_;
  std::vector<Scope> scopes_;
  int32_t call_begin_ = 0;
  int32_t call_end_ = 0;
};

}  // namespace

void ParseBody(TokenReader* reader, FunctionText* function, std::vector<Variable>* shared) {
  BodyParser(reader, function, shared).Run();
}

Variable ParseDeclaration(TokenReader* reader) {
  Variable variable;
  variable.line = reader->line();
  while (reader->IsDirective()) {
    const std::string word = reader->Next();
    if (word == ".align") {
      variable.alignment = static_cast<int32_t>(reader->NextNumber());
    } else if (BytesOfType(word.substr(1)) > 0) {
      variable.element_bytes = BytesOfType(word.substr(1));
    } else if (word != ".ptr" && word != ".global" && word != ".shared" && word != ".const" &&
               word != ".local" && word != ".volatile") {
      reader->Fail(fmt::format("unknown directive {} of a variable", word));
    }
  }
  variable.alignment = std::max({variable.alignment, variable.element_bytes, 1});
  variable.name = reader->Next();
  variable.size_bytes = variable.element_bytes;
  while (reader->TakeIf("[")) {
    variable.size_bytes *= reader->Is("]") ? 0 : static_cast<int32_t>(reader->NextNumber());
    reader->Expect("]");
  }
  return variable;
}

Variable ParseVariable(TokenReader* reader) {
  Variable variable = ParseDeclaration(reader);
  if (reader->TakeIf("=")) {
    if (reader->TakeIf("{")) {
      while (!reader->AtEnd() && !reader->TakeIf("}")) {
        if (!reader->TakeIf(",")) variable.values.push_back(reader->Next());
      }
    } else {
      variable.values.push_back(reader->Next());
    }
  }
  reader->Expect(";");
  return variable;
}

}  // namespace specd::ptx
