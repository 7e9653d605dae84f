#include "tests/gpu/ptx/machine/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tests/gpu/ptx/machine/body_parser.h"
#include "tests/gpu/ptx/machine/token_reader.h"

namespace specd::ptx {

namespace {

// Every .param begins at a multiple of this, which no type's alignment exceeds.
constexpr int32_t kParamAlignment = 16;

int32_t RoundUp(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class ModuleParser {
 public:
  ModuleParser(const std::string& file, std::string_view text) : reader_(file, Tokenize(text)) {
    module_.file = file;
  }

  absl::StatusOr<ModuleText> Run() {
    while (!reader_.AtEnd()) ParseDirective();
    if (!reader_.status().ok()) return reader_.status();
    return std::move(module_);
  }

 private:
  void ParseDirective() {
    const std::string word = reader_.Next();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      reader_.Next();
      while (reader_.TakeIf(",")) reader_.Next();
    } else if (word == ".visible" || word == ".weak" || word == ".extern" || word == ";") {
      // Linkage: one module is one program here.
    } else if (word == ".func" || word == ".entry") {
      ParseFunction(word == ".entry");
    } else if (word == ".global" || word == ".const") {
      module_.globals.push_back(ParseVariable(&reader_));
    } else if (word == ".shared") {
      module_.shared.push_back(ParseVariable(&reader_));
    } else if (word == ".pragma") {
      reader_.SkipBehind(";");
    } else {
      reader_.Fail(fmt::format("unknown directive {}", word));
    }
  }

  // Params of one list lie behind each other in the function's memory of params.
  std::vector<Param> ParseParams(FunctionText* function) {
    std::vector<Param> params;
    reader_.Expect("(");
    while (!reader_.AtEnd() && !reader_.TakeIf(")")) {
      if (reader_.TakeIf(",")) continue;
      reader_.Expect(".param");
      const Variable variable = ParseDeclaration(&reader_);
      const int32_t offset = RoundUp(function->param_bytes, kParamAlignment);
      params.push_back({variable.name, offset, variable.size_bytes});
      function->param_bytes = offset + variable.size_bytes;
    }
    return params;
  }

  void ParseFunction(bool is_entry) {
    FunctionText function;
    function.is_entry = is_entry;
    function.line = reader_.line();
    while (reader_.IsDirective()) TakeAttribute();
    if (reader_.Is("(")) function.results = ParseParams(&function);
    function.name = reader_.Next();
    if (reader_.Is("(")) function.params = ParseParams(&function);
    while (reader_.IsDirective()) TakeAttribute();
    if (reader_.TakeIf("{")) {
      function.has_body = true;
      ParseBody(&reader_, &function, &module_.shared);
    } else {
      reader_.Expect(";");
    }
    module_.functions.push_back(std::move(function));
  }

  // A function's promise to ptxas. No promise changes what the instructions do. PTX ISA,
  // "Performance-Tuning Directives".
  void TakeAttribute() {
    const std::string word = reader_.Next();
    if (word == ".maxntid" || word == ".reqntid" || word == ".minnctapersm" || word == ".maxnreg" ||
        word == ".reqnctapercluster" || word == ".maxclusterrank") {
      reader_.NextNumber();
      while (reader_.TakeIf(",")) reader_.NextNumber();
    } else if (word != ".noreturn" && word != ".explicitcluster") {
      reader_.Fail(fmt::format("unknown directive {} of a function", word));
    }
  }

  TokenReader reader_;
  ModuleText module_;
};

// The digits behind the first letter, of a type or none.
int BitsOf(std::string_view type) {
  int bits = 0;
  const char* const end = type.data() + type.size();
  const auto [last, error] = std::from_chars(type.data() + 1, end, bits);
  return error == std::errc() && last == end ? bits : -1;
}

}  // namespace

absl::StatusOr<ModuleText> ParseModule(const std::string& file, std::string_view text) {
  return ModuleParser(file, text).Run();
}

int BytesOfType(std::string_view type) {
  if (type == "pred") return kPredicateBytes;
  if (type.size() < 2 || std::string_view("busf").find(type[0]) == std::string_view::npos) {
    return -1;
  }
  const int bits = BitsOf(type);
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : -1;
}

}  // namespace specd::ptx
