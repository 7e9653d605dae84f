#include "speculative/grammar/xgrammar_text.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace specd::grammar {
namespace {

std::string Nested(size_t depth) { return std::string(depth, '(') + "a" + std::string(depth, ')'); }

absl::StatusOr<std::string> ToTag(std::string_view text) {
  return StructuralTagToXgrammar(
      text, [](std::string_view schema, const std::string& pointer) -> absl::StatusOr<std::string> {
        return std::string(schema) + " at " + pointer;
      });
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a choice becomes a grammar for xgrammar, with its quotes and controls escaped") {
    CHECK(ChoiceToEbnf(R"(["a", "\"\\", "\n\u0000\u007f", "é", ""])").value() ==
          R"(root ::= "a" | "\"\\" | "\x0a\x00\x7f" | "é" | "")");
    for (const char* text :
         {"", "[]", "{}", "\"a\"", "[1]", "[\"a\",null]", "[\"a\"", "[\"\xff\"]"}) {
      CAPTURE(text);
      CHECK(ChoiceToEbnf(text).status().code() == absl::StatusCode::kInvalidArgument);
    }
    CHECK(std::string(ChoiceToEbnf("[\"a\",7]").status().message()) ==
          "choice: /1 must be a string, not 7");
  }

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

  TEST_CASE("a structural tag without its parts is refused by the place of the error") {
    const auto message = [](std::string_view text) {
      const absl::Status status = ToTag(text).status();
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    CHECK(message(R"({"triggers":[]})").find("array tags") != std::string::npos);
    CHECK(message(R"({"tags":[]})").find("array triggers") != std::string::npos);
    CHECK(message("[]").find("JSON object") != std::string::npos);
    CHECK(message(R"({"tags":[],"triggers":["a",1]})").find("/triggers/1 must") !=
          std::string::npos);
    CHECK(message(R"({"structures":[{"begin":"a"}],"triggers":[]})").find("/structures/0 must") !=
          std::string::npos);
    CHECK(message(R"({"tags":[{"begin":"a","schema":{},"end":2}],"triggers":[]})")
              .find("/tags/0/end must") != std::string::npos);
  }

  TEST_CASE("a pattern with parts that xgrammar ignores is refused") {
    for (const char* pattern : {"", "^a$", "a", "[^a]$", "[$^]x", "\\^a\\$b", "(?:a)", "a[(?=]"}) {
      CAPTURE(pattern);
      CHECK(CheckPattern(pattern).ok());
    }
    for (const char* pattern :
         {"(?=a)b", "a(?!b)", "(?<=a)b", "(?<!a)b", "a^b", "(^a)", "a$b", "(a$)", "[a]^"}) {
      CAPTURE(pattern);
      CHECK(CheckPattern(pattern).code() == absl::StatusCode::kUnimplemented);
    }
    CHECK(std::string(CheckPattern("ab(?!c)").message()).find("offset 2") != std::string::npos);
  }

  TEST_CASE("groups nested past the limit are refused before xgrammar recurses into them") {
    constexpr auto kRefused = absl::StatusCode::kResourceExhausted;
    CHECK(CheckPattern(Nested(kGroupDepthMax)).ok());
    CHECK(CheckPattern(Nested(kGroupDepthMax + 1)).code() == kRefused);
    CHECK(CheckEbnf("root ::= " + Nested(kGroupDepthMax)).ok());
    CHECK(CheckEbnf("root ::= " + Nested(kGroupDepthMax + 1)).code() == kRefused);
    // Parentheses of literals, classes and comments open no group.
    const std::string many(1000, '(');
    CHECK(CheckPattern("[" + many + "]").ok());
    CHECK(CheckEbnf("# " + many + "\nroot ::= \"" + many + "\\\"(\" [" + many + "]").ok());
    CHECK(CheckEbnf("# comment \\\nroot ::= " + Nested(kGroupDepthMax + 1)).code() == kRefused);
  }

  TEST_CASE("an error of xgrammar loses its clock, file and line") {
    CHECK(TrimError("InternalError: [20:20:15] /project/cpp/a.cc:83: At position 3: no: x\n") ==
          "At position 3: no: x");
    CHECK(TrimError("InternalError: [20:20:15] /project/cpp/a.h:83: Too deep") == "Too deep");
    CHECK(TrimError("TypeError: no file") == "TypeError: no file");
  }
}

}  // namespace specd::grammar
