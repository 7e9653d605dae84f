#include "speculative/grammar/xgrammar_text.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace specd::grammar {
namespace {

std::string Nested(size_t depth) { return std::string(depth, '(') + "a" + std::string(depth, ')'); }

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a choice becomes a grammar for xgrammar, with its quotes and controls escaped") {
    CHECK(ChoiceToEbnf(R"(["a", "\"\\", "\n\u0000\u007f", "é", ""])").value() ==
          R"(root ::= "a" | "\"\\" | "\u000a\u0000\u007f" | "é" | "")");
    for (const char* text :
         {"", "[]", "{}", "\"a\"", "[1]", "[\"a\",null]", "[\"a\"", "[\"\xff\"]"}) {
      CAPTURE(text);
      CHECK(ChoiceToEbnf(text).status().code() == absl::StatusCode::kInvalidArgument);
    }
    CHECK(std::string(ChoiceToEbnf("[\"a\",7]").status().message()) ==
          "choice: /1 must be a string, not 7");
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
