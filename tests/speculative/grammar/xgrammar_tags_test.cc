#include "speculative/grammar/xgrammar_tags.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace specd::grammar {
namespace {

// The stand-in of a schema's grammar tells which schema it got, and from where.
absl::StatusOr<std::string> ToTag(std::string_view text) {
  return StructuralTagToXgrammar(
      text, [](std::string_view schema, const std::string& pointer) -> absl::StatusOr<std::string> {
        return std::string(schema) + " at " + pointer;
      });
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a structural tag takes xgrammar's form") {
    const std::string expected =
        R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[)"
        R"({"type":"tag","begin":"<f=\"","content":{"type":"grammar",)"
        R"("grammar":"{\"type\":\"object\"} at /tags/0/schema"},"end":"</f>"}],)"
        R"("at_least_one":false,"stop_after_first":false}})";
    CHECK(ToTag(R"({"triggers":["<f"],"tags":[{"begin":"<f=\"","schema":{"type":"object"},)"
                R"("end":"</f>"}]})")
              .value() == expected);
    // vLLM's name of the tags.
    CHECK(ToTag(R"({"type":"structural_tag","triggers":[],"structures":[]})").ok());
  }

  TEST_CASE("a tree of formats goes to xgrammar with its schemas as grammars") {
    CHECK(ToTag(R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
                R"({"type":"tag","begin":"a","content":{"type":"json_schema","style":"json",)"
                R"("json_schema":{"type":"x"}},"end":["b","c"]},{"type":"any_text","excludes":[]},)"
                R"({"type":"repeat","min":1,"max":2,"content":{"type":"regex","pattern":"a"}}]}})")
              .value() ==
          R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
          R"({"type":"tag","begin":"a","content":{"type":"grammar","grammar":)"
          R"("{\"type\":\"x\"} at /format/elements/0/content/json_schema"},"end":["b","c"]},)"
          R"({"type":"any_text","excludes":[]},)"
          R"({"type":"repeat","min":1,"max":2,"content":{"type":"regex","pattern":"a"}}]}})");
  }

  TEST_CASE("a format that xgrammar would not enforce is refused by its place") {
    const auto message = [](std::string_view format) {
      const absl::Status status = ToTag("{\"format\":" + std::string(format) + "}").status();
      CHECK(status.code() == absl::StatusCode::kUnimplemented);
      return std::string(status.message());
    };
    CHECK(message(R"({"type":"token","token":1})").find("unsupported /format/type: token") !=
          std::string::npos);
    CHECK(message(R"({"type":"tag","begin":{"type":"token","token":1}})")
              .find("/format/begin/type") != std::string::npos);
    CHECK(message(R"({"type":"json_schema","json_schema":{},"style":"qwen_xml"})")
              .find("unsupported /format/style") != std::string::npos);
    CHECK(message(R"({"type":"regex","pattern":"(?=a)b"})").find("lookaround") !=
          std::string::npos);
  }

  TEST_CASE("a structural tag without its parts is refused by the place of the error") {
    const auto message = [](std::string_view text) {
      const absl::Status status = ToTag(text).status();
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    CHECK(message(R"({"triggers":[]})").find("arrays structures") != std::string::npos);
    CHECK(message(R"({"tags":[]})").find("/triggers must") != std::string::npos);
    CHECK(message(R"({"format":[]})").find("/format must") != std::string::npos);
    CHECK(message(R"({"format":{"type":"sequence","elements":[{"a":1}]}})")
              .find("/format/elements/0 must have a string type") != std::string::npos);
    CHECK(message(R"({"format":{"type":"json_schema"}})").find("/format must have") !=
          std::string::npos);
    CHECK(message("[]").find("JSON object") != std::string::npos);
    CHECK(message(R"({"tags":[],"triggers":["a",1]})").find("/triggers/1 must") !=
          std::string::npos);
    CHECK(message(R"({"structures":[{"begin":"a"}],"triggers":[]})").find("/structures/0 must") !=
          std::string::npos);
    CHECK(message(R"({"tags":[{"begin":"a","schema":{},"end":2}],"triggers":[]})")
              .find("/tags/0/end must") != std::string::npos);
  }
}

}  // namespace specd::grammar
