#include "speculative/grammar/front_ends/ebnf.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

// True if the grammar accepts exactly the first list of the two.
void CheckTexts(std::string_view text, const std::vector<std::string>& accepted,
                const std::vector<std::string>& rejected) {
  INFO("grammar:\n", std::string(text));
  GrammarRules rules;
  const absl::StatusOr<ExprId> root = ParseEbnf(text, {}, &rules);
  REQUIRE_MESSAGE(root.ok(), std::string(root.status().message()));
  const GrammarReference reference(rules, *root);
  for (const std::string& candidate : accepted) {
    CHECK_MESSAGE(reference.Accepts(candidate), "refuses '", candidate, "'");
  }
  for (const std::string& candidate : rejected) {
    CHECK_MESSAGE(!reference.Accepts(candidate), "accepts '", candidate, "'");
  }
}

void CheckError(std::string_view text, absl::StatusCode code, const std::string& message) {
  INFO("grammar:\n", std::string(text));
  GrammarRules rules;
  const absl::StatusOr<ExprId> root = ParseEbnf(text, {}, &rules);
  REQUIRE(!root.ok());
  const std::string found(root.status().message());
  INFO("message: ", found);
  CHECK(root.status().code() == code);
  CHECK(found.find(message) != std::string::npos);
}

void CheckInvalid(std::string_view text, const std::string& message) {
  CheckError(text, absl::StatusCode::kInvalidArgument, message);
}

void CheckUnsupported(std::string_view text, const std::string& message) {
  CheckError(text, absl::StatusCode::kUnimplemented, message);
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("ebnf: alternatives, sequences, groups and repetitions") {
    CheckTexts(R"(root ::= "a" | "b" "c")", {"a", "bc"}, {"", "b", "ac", "abc"});
    CheckTexts(R"(root ::= ("a" | "bc")? "z")", {"z", "az", "bcz"}, {"", "a", "bc", "bz", "abcz"});
    CheckTexts(R"(root ::= ("a" | "bc")*)", {"", "a", "bc", "abc", "bca", "bcbca"},
               {"b", "c", "ac", "ab"});
    CheckTexts(R"(root ::= ("ab"|"ac"|"db"|"dc")("x"|"yz"))", {"abx", "acyz", "dbx", "dcyz"},
               {"ab", "aby", "adx", "abxx"});
    CheckTexts(R"(root ::= "ab"+)", {"ab", "abab"}, {"", "abb", "aba"});
    CheckTexts(R"(root ::= "a"{2})", {"aa"}, {"", "a", "aaa"});
    CheckTexts(R"(root ::= "a"{2,})", {"aa", "aaaaaa"}, {"", "a"});
    CheckTexts(R"(root ::= "a"{ 1 , 3 } "b"{0,1})", {"a", "aaa", "aab"}, {"", "b", "aaaa", "abb"});
    CheckTexts(R"(root ::= "a"{2,-1})", {"aa", "aaa"}, {"a"});
    CheckTexts(R"(root ::= "a"{0})", {""}, {"a"});
  }

  TEST_CASE("ebnf: an empty alternative, group or text is the empty text") {
    CheckTexts(R"(root ::= "a" |)", {"", "a"}, {"aa"});
    CheckTexts(R"(root ::= (| "a") "b")", {"b", "ab"}, {"", "a"});
    CheckTexts(R"(root ::= () "b")", {"b"}, {""});
    CheckTexts(R"(root ::= "")", {""}, {"a"});
  }

  TEST_CASE("ebnf: rules end where the next one begins, comments and lines are blanks") {
    CheckTexts(
        "# first\n\nroot ::= a-1 | # choice\n  b_2\n  | 3c # last\n  a-1 ::= \"x\"\r\n"
        "b_2 ::=\n  \"y\" \"#\"\n3c ::= (\n\"z\"\n# in a group\n\"[\")\n",
        {"x", "y#", "z["}, {"y", "z", ""});
    CheckTexts("root ::= \"a\" b\nb ::= \"b\"", {"ab"}, {"a"});
    CheckTexts("root ::= \"a\"\n+\nb ::= \"b\"", {"a", "aa"}, {"ab"});
  }

  TEST_CASE("ebnf: rules may call themselves first, last and in between") {
    CheckTexts("root ::= root \"a\" | \"a\"", {"a", "aaaa"}, {"", "b", "ab"});
    CheckTexts("root ::= [a-z] root | [a-z]", {"a", "abcz"}, {"", "a1"});
    CheckTexts("root ::= \"(\" root \")\" root |", {"", "()", "(())()"}, {"(", ")(", "(()"});
    CheckTexts("root ::= other \"x\" | \"y\"\nother ::= root \"z\"", {"y", "yzx", "yzxzx"},
               {"yz", "yx"});
  }

  TEST_CASE("ebnf: a class holds characters") {
    CheckTexts("root ::= [^a]+", {"bbb", "\xC2\xA9", "\xE2\xA1\xA1", "b\n"},
               {"", "bba", "\xE2\xA1\xA1\xA1", "\xE2\xA1\xE2\xA1", "\xFF"});
    CheckTexts("root ::= [^a-cx-z]+", {"d", "w", "dw"}, {"a", "x", "da", "wy"});
    CheckTexts("root ::= [a-c-]", {"a", "c", "-"}, {"d"});
    CheckTexts("root ::= [-a]", {"a", "-"}, {"b"});
    CheckTexts("root ::= [a^]", {"a", "^"}, {"b"});
    CheckTexts(R"(root ::= [\]\[\\\-^"])", {"]", "[", "\\", "-", "^", "\""}, {"a", "_"});
    CheckTexts(R"(root ::= [a\-z])", {"a", "-", "z"}, {"b"});
    CheckTexts(R"(root ::= [+--])", {"+", ",", "-"}, {".", "*"});
    CheckTexts(R"(root ::= [α-ω])", {"α", "λ", "ω"}, {"a", "\xCE"});
    CheckTexts(R"(root ::= [\x41-\x43\u00e9\U0001F600])", {"A", "B", "C", "é", "😀"},
               {"D", "\xC3", "\xE9"});
    CheckTexts("root ::= . .", {"ab", "é\n", "😀x"}, {"a", "abc", "\xC3\xA9", "a\xFF"});
  }

  TEST_CASE("ebnf: escapes in texts are characters") {
    CheckTexts(R"(root ::= "\n\r\t\\\"\'\0\a\b\f\v\e\/\?")",
               {std::string("\n\r\t\\\"'\0\a\b\f\v\x1B/?", 14)}, {""});
    CheckTexts(R"(root ::= "\xe9|\u20AC|\U0001F600|é")", {"é|€|😀|é"}, {"\xE9|€|😀|é"});
    CheckTexts(R"(root ::= "\x41\[\]\-g")", {"A[]-g"}, {""});
  }

  TEST_CASE("ebnf: the root may have another name, and grammars may share rules") {
    GrammarRules rules;
    const auto first = ParseEbnf("start ::= item\nitem ::= \"a\"", {.root = "start"}, &rules);
    const auto second = ParseEbnf("root ::= item item\nitem ::= \"b\"", {}, &rules);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    const ExprId both = rules.Sequence({*first, *second});
    CHECK(GrammarReference(rules, both).Accepts("abb"));
    CHECK(!GrammarReference(rules, both).Accepts("aaa"));
  }

  TEST_CASE("ebnf: an error shows line, column and caret") {
    GrammarRules rules;
    const auto root = ParseEbnf("root ::= \"é\"\n   | item\n", {}, &rules);
    REQUIRE(!root.ok());
    CHECK(root.status().message() ==
          "grammar, line 2, column 6: no rule is named item; define it, or correct the name\n"
          "     | item\n"
          "       ^");
    const auto column = ParseEbnf("root ::= \"é\" )", {}, &rules);
    CHECK(std::string(column.status().message()).find("line 1, column 14: ") != std::string::npos);
    CHECK(std::string(column.status().message()).find("\n" + std::string(15, ' ') + "^") !=
          std::string::npos);
    const auto tab = ParseEbnf("root ::=\t)", {}, &rules);
    CHECK(std::string(tab.status().message()).find("\n  root ::= )\n           ^") !=
          std::string::npos);
  }

  TEST_CASE("ebnf: a long line is cut around the caret") {
    GrammarRules rules;
    const std::string text =
        "root ::= \"" + std::string(100, 'x') + "\" ) \"" + std::string(100, 'y') + "\"";
    const auto root = ParseEbnf(text, {}, &rules);
    REQUIRE(!root.ok());
    CHECK(std::string(root.status().message())
              .find("\n  " + std::string(38, 'x') + "\" ) \"" + std::string(37, 'y') + "\n  " +
                    std::string(40, ' ') + "^") != std::string::npos);
  }

  TEST_CASE("ebnf: wrong grammars are refused") {
    CheckInvalid("", "has no rule");
    CheckInvalid(" # nothing\n", "has no rule");
    CheckInvalid("item ::= \"a\"", "no rule is named root");
    CheckInvalid("root ::= item", "no rule is named item");
    CheckInvalid("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is defined twice");
    CheckInvalid("root ::=", "has no body");
    CheckInvalid("root ::=\nitem ::= \"a\"", "line 1, column 1: rule root has no body");
    CheckInvalid("root ::= \"a\" item ::= \"b\"", "begins a line");
    CheckInvalid("root = \"a\"", "column 6: no item begins");
    CheckInvalid("root : \"a\"", "colon stands alone");
    CheckInvalid("root", "a rule is expected");
    CheckInvalid("\"a\"", "a rule is expected");
    CheckInvalid("::= \"a\"", "no name before it");
    CheckInvalid("root ::= ::= \"a\"", "no name before it");
    CheckInvalid("root ::= (\"a\"", "column 10: the group has no closing parenthesis");
    CheckInvalid("root ::= (\"a\"\nitem ::= \"b\"", "line 1, column 10: the group has no closing");
    CheckInvalid("root ::= \"a\")", "no opening one");
    CheckInvalid("root ::= *", "nothing before it");
    CheckInvalid("root ::= \"a\" | {2}", "nothing before it");
    CheckInvalid("root ::= \"a\"*+", "column 14: a repetition follows another");
    CheckInvalid("root ::= \"a\"{,3}", "write {0,n}");
    CheckInvalid("root ::= \"a\"{}", "write {0,n}");
    CheckInvalid("root ::= \"a\"{3,2}", "3 to 2 times");
    CheckInvalid("root ::= \"a\"{3", "no closing brace");
    CheckInvalid("root ::= \"a\"{3,-2}", "write {0,n}");
    CheckInvalid("root ::= \"a", "column 10: the text has no closing quote");
    CheckInvalid("root ::= \"a\nb\"", "column 10: the text has no closing quote");
    CheckInvalid("root ::= [a", "column 10: the class has no closing bracket");
    CheckInvalid("root ::= [a-", "column 10: the class has no closing bracket");
    CheckInvalid("root ::= [a\n]", "the class has no closing bracket");
    CheckInvalid("root ::= []", "the class is empty");
    CheckInvalid("root ::= [^]", "the class is empty");
    CheckInvalid("root ::= [xz-a]", "column 12: the range's first character");
    CheckInvalid("root ::= 'a'", "no item begins");
    CheckInvalid("root ::= \"a\\", "unknown escape");
    CheckInvalid("root ::= \"\\q\"", "unknown escape");
    CheckInvalid("root ::= \"\\x4\"", "takes 2 hexadecimal digits");
    CheckInvalid("root ::= \"\\u00e\"", "takes 4 hexadecimal digits");
    CheckInvalid("root ::= \"\\ud83d\\ude00\"", "not a character");
    CheckInvalid("root ::= \"\\U00110000\"", "not a character");
    CheckInvalid("root ::= \"\xFF\"", "not valid UTF-8 at byte 10");
    CheckInvalid(std::string("root ::= \0", 10), "no item begins");
  }

  TEST_CASE("ebnf: a spelling of two meanings is refused") {
    CheckInvalid("root ::= \"\\x041\"", "write \\uHHHH");
    CheckInvalid("root ::= a.b\na ::= \"a\"\nb ::= \"b\"", "a dot touches a name");
    CheckInvalid("root ::= .b\nb ::= \"b\"", "a dot touches a name");
    CheckTexts("root ::= . b .\nb ::= \"b\"", {"xby"}, {"b"});
  }

  TEST_CASE("ebnf: right text that cannot be enforced is refused by name") {
    CheckUnsupported("root ::= \"a\" (= \"b\")", "unsupported lookahead");
    CheckUnsupported("root ::= TagDispatch((\"<a>\", item))", "unsupported macro TagDispatch");
    CheckUnsupported("root ::= Token (1)", "unsupported macro Token");
    CheckUnsupported("root ::= Regex(\"a\")", "unsupported macro Regex");
    CheckUnsupported("root[max_tokens=3] ::= \"a\"", "unsupported attribute max_tokens");
    CheckUnsupported("root ::= \"a\"\nitem[capture=\"x\"] ::= \"a\"",
                     "unsupported attribute capture");
    CheckUnsupported("root ::= <think>", "unsupported token reference");
    CheckUnsupported("root ::= !<[7]>", "unsupported token reference");
    CheckUnsupported("root ::= /a+/", "unsupported /pattern/");
    CheckUnsupported("root ::= [\\d]", "unsupported class \\d");
    CheckTexts("root ::= Token\nToken ::= \"t\"", {"t"}, {});
  }

  TEST_CASE("ebnf: limits") {
    const auto nested = [](int depth) {
      const auto size = static_cast<size_t>(depth);
      return "root ::= " + std::string(size, '(') + "\"a\"" + std::string(size, ')');
    };
    CheckTexts(nested(256), {"a"}, {"", "aa"});
    CheckError(nested(257), absl::StatusCode::kResourceExhausted, "deeper than 256 levels");
    CheckTexts("root ::= \"a\"{0,65535}", {"aaa"}, {});
    CheckError("root ::= \"a\"{65536}", absl::StatusCode::kResourceExhausted, "past 65535");
    CheckError("root ::= \"a\"{99999999999999999999,}", absl::StatusCode::kResourceExhausted,
               "past 65535");
    const std::string blanks((1 << 20) - 12, ' ');
    CheckTexts("root ::= \"a\"" + blanks, {"a"}, {});
    CheckError("root ::= \"a\" " + blanks, absl::StatusCode::kResourceExhausted, "allowed are");
  }
}

}  // namespace specd::grammar
