#include "tests/gpu/ptx/machine/module_loader.h"

#include <fmt/format.h>

#include <cctype>
#include <cstring>

#include "tests/gpu/ptx/machine/operand_slots.h"
#include "tests/gpu/ptx/machine/parser.h"
#include "tests/gpu/ptx/machine/statement_decoder.h"

namespace specd::ptx {

namespace {

class Loader {
 public:
  explicit Loader(const ModuleText& text) : text_(text), module_(std::make_unique<Module>()) {
    module_->file = text.file;
  }

  absl::StatusOr<std::unique_ptr<Module>> Run() {
    for (const Variable& variable : text_.shared) DeclareShared(variable);
    for (const FunctionText& function : text_.functions) DeclareFunction(function);
    for (const Variable& variable : text_.globals) {
      module_->globals[variable.name] =
          std::make_unique<DeviceBlock>(static_cast<size_t>(variable.size_bytes));
    }
    for (const Variable& variable : text_.globals) {
      const absl::Status status = Initialize(variable);
      if (!status.ok()) return status;
    }
    for (const FunctionText& function : text_.functions) {
      if (!function.has_body) continue;
      const absl::Status status = Decode(function);
      if (!status.ok()) return status;
    }
    return std::move(module_);
  }

 private:
  // A variable that several functions declare alike is one.
  void DeclareShared(const Variable& variable) {
    if (module_->shared.contains(variable.name)) return;
    const int32_t alignment = variable.alignment;
    const int32_t offset = (module_->shared_bytes + alignment - 1) / alignment * alignment;
    module_->shared[variable.name] = offset;
    module_->shared_bytes = offset + variable.size_bytes;
  }

  // A function is declared before its body, with params of other names.
  void DeclareFunction(const FunctionText& text) {
    std::unique_ptr<Function>& function = module_->functions[text.name];
    if (function == nullptr) function = std::make_unique<Function>();
    if (function->has_body) return;
    function->name = text.name;
    function->module = module_.get();
    function->is_entry = text.is_entry;
    function->has_body = text.has_body;
    function->params = text.params;
    function->results = text.results;
    function->param_bytes = text.param_bytes;
    function->local_bytes = text.local_bytes;
  }

  // PTX ISA, "Initializers": numbers, or names whose addresses are meant; zeros behind them.
  absl::Status Initialize(const Variable& variable) {
    std::byte* at = module_->globals[variable.name]->begin();
    if (at == nullptr) return absl::ResourceExhaustedError("no memory for a variable");
    std::memset(at, 0, static_cast<size_t>(variable.size_bytes));
    for (const std::string& text : variable.values) {
      uint64_t value = ParseNumber(text, variable.element_bytes);
      const bool is_number =
          std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-';
      if (!is_number && !FindAddress(text, &value)) {
        return absl::InvalidArgumentError(
            fmt::format("{}:{}: '{}' is no initial value", text_.file, variable.line, text));
      }
      std::memcpy(at, &value, static_cast<size_t>(variable.element_bytes));
      at += variable.element_bytes;
    }
    return absl::OkStatus();
  }
  bool FindAddress(const std::string& name, uint64_t* address) const {
    const auto function = module_->functions.find(name);
    const auto global = module_->globals.find(name);
    if (function != module_->functions.end()) {
      *address = reinterpret_cast<uint64_t>(function->second.get());
    } else if (global != module_->globals.end()) {
      *address = reinterpret_cast<uint64_t>(global->second->begin());
    } else {
      return false;
    }
    return true;
  }

  absl::Status Decode(const FunctionText& text) {
    Function* const function = module_->functions[text.name].get();
    OperandSlots slots(text, *module_, function);
    function->code.reserve(text.statements.size() + 1);
    for (const Statement& statement : text.statements) {
      function->code.push_back(DecodeStatement(text, *module_, statement, &slots));
      if (!slots.status().ok()) return slots.status();
      const Scope scope = function->code.back().access.scope;
      if (scope != Scope::kNone) {
        module_->narrowest_scope = std::min(module_->narrowest_scope, scope);
      }
    }
    Instruction end;  // lanes that come to the end of the body
    end.flow = Flow::kReturn;
    end.opcode = "ret";
    end.line = text.statements.empty() ? text.line : text.statements.back().line;
    function->code.push_back(std::move(end));
    return absl::OkStatus();
  }

  const ModuleText& text_;
  std::unique_ptr<Module> module_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> LoadModule(const std::string& file, std::string_view text) {
  const absl::StatusOr<ModuleText> parsed = ParseModule(file, text);
  if (!parsed.ok()) return parsed.status();
  return Loader(*parsed).Run();
}

}  // namespace specd::ptx
