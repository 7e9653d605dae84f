#include "speculative/grammar/xgrammar_warnings.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/xgrammar_cases.h"

namespace specd::grammar {
namespace {

bool HasPart(const std::vector<std::string>& lines, std::string_view part) {
  for (const std::string& line : lines) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("unit") {
  // xgrammar_library_test shows that the library lets the violating values of these schemas pass.
  TEST_CASE("each part of a schema that xgrammar drops has a warning with its JSON pointer") {
    for (const WeakSchema& weak : kWeakSchemas) {
      CAPTURE(weak.schema);
      const std::vector<std::string> warnings = FindUnenforced(weak.schema, "").value();
      CAPTURE(warnings.size());
      CHECK(HasPart(warnings, std::string(weak.pointer) + ": "));
    }
  }

  TEST_CASE("a schema that xgrammar enforces has no warning") {
    for (const StrongSchema& strong : kStrongSchemas) {
      CAPTURE(strong.schema);
      const std::vector<std::string> warnings = FindUnenforced(strong.schema, "").value();
      CHECK(warnings.empty());
      if (!warnings.empty()) MESSAGE(warnings[0]);
    }
  }

  TEST_CASE("a name of a property is no keyword, and a pointer escapes it") {
    CHECK(FindUnenforced(R"({"type":"object","properties":{"not":{},"if":{}},)"
                         R"("additionalProperties":false})",
                         "")
              ->empty());
    const auto warnings = FindUnenforced(R"({"type":"object","properties":{"a/b~":{"not":{}}},)"
                                         R"("additionalProperties":false})",
                                         "/tags/0/schema");
    REQUIRE(warnings->size() == 1);
    CHECK(warnings->front() == "/tags/0/schema/properties/a~1b~0/not: is ignored");
  }

  TEST_CASE("a schema that is not JSON, or nested too deep, is refused") {
    CHECK(FindUnenforced("{", "").status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(FindUnenforced("", "").status().code() == absl::StatusCode::kInvalidArgument);
    std::string deep = "true";
    for (int i = 0; i < 300; ++i) deep = R"({"items":)" + deep + "}";
    CHECK(FindUnenforced(deep, "").status().code() == absl::StatusCode::kResourceExhausted);
    const std::string groups(300, '(');
    CHECK(FindUnenforced(R"({"type":"string","pattern":")" + groups + "\"}", "").status().code() ==
          absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace specd::grammar
