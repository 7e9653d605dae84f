#include "tools/params_doc/params_doc.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "speculative/params/param_check.h"
#include "speculative/params/param_rules.h"
#include "speculative/params/param_table.h"
#include "tools/params_doc/presets.h"

namespace specd {
namespace {

std::vector<std::string> Split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos;) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string Without(std::string text, const std::string& part) {
  const size_t at = text.find(part);
  return at == std::string::npos ? text : text.erase(at, part.size());
}

TEST_SUITE("style") {
  TEST_CASE("the ranges and defaults of CONTRACT §8 are those of the table") {
    std::ifstream file(std::string(SPECD_SOURCE_DIR) + "/docs/CONTRACT.md");
    REQUIRE(file.good());
    std::string line;
    while (std::getline(file, line) && line.rfind("## 8. ", 0) != 0) continue;
    int num_fields = 0;
    while (std::getline(file, line) && line.rfind("## ", 0) != 0) {
      if (line.rfind("| `", 0) != 0) continue;
      CAPTURE(line);
      const std::vector<std::string> cells = Split(line, " | ");
      REQUIRE(cells.size() == 3);
      const std::string default_text = cells[2].substr(0, cells[2].find_first_of(" "));
      for (const std::string& quoted : Split(cells[0].substr(2), ", ")) {
        REQUIRE(quoted.size() > 2);
        const ParamRow* row = FindParam(quoted.substr(1, quoted.size() - 2));
        REQUIRE(row != nullptr);
        CHECK(cells[1] == Without(RangeText(*row), " in 0 .. vocab_size - 1"));
        CHECK(default_text == ValueText(*row, {}));
        ++num_fields;
      }
    }
    CHECK(num_fields >= 22);
  }

  TEST_CASE("docs/PARAMETERS.md is what specd-params prints") {
    std::ifstream file(std::string(SPECD_SOURCE_DIR) + "/docs/PARAMETERS.md");
    REQUIRE(file.good());
    std::istringstream printed(ParamsDoc());
    std::string in_file;
    std::string in_code;
    for (int line = 1; std::getline(printed, in_code); ++line) {
      CAPTURE(line);
      REQUIRE_MESSAGE(std::getline(file, in_file), "the file ends early: run specd-params");
      REQUIRE_MESSAGE(in_file == in_code, "run specd-params > docs/PARAMETERS.md");
    }
    CHECK_MESSAGE(!std::getline(file, in_file), "the file goes on: run specd-params");
  }
}

TEST_SUITE("unit") {
  TEST_CASE("each parameter has a row of its own, each refused name is named") {
    const std::string text = ParamsDoc();
    for (const ParamRow& row : ParamTable()) {
      const std::string cell = "\n| `" + std::string(row.field) + "` ";
      CAPTURE(row.field);
      const size_t at = text.find(cell);
      CHECK(at != std::string::npos);
      CHECK(text.find(std::string(row.meaning), at) != std::string::npos);
    }
    for (const RefusedName& refused : RefusedNames()) {
      CHECK(text.find("`" + std::string(refused.name)) != std::string::npos);
    }
  }

  TEST_CASE("what is recommended is allowed, for code, writing and chat") {
    std::string uses;
    for (const Preset& preset : Presets()) {
      CAPTURE(preset.use);
      CHECK(ValidateParams(preset.make(), 32000).ok());
      uses += preset.use;
    }
    for (const char* use : {"code", "writing", "chat"}) {
      CHECK(uses.find(use) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace specd
