#include "tools/params_doc/params_doc.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "speculative/param_rules.h"
#include "speculative/param_table.h"
#include "tools/params_doc/presets.h"

namespace specd {
namespace {

TEST_SUITE("style") {
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
