#include "speculative/grammar/front_ends/regex.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/front_ends/regex_parser.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

using std::string_literals::operator""s;
using Texts = std::vector<std::string>;

constexpr RegexOptions kFullMatch = {.search = false};
constexpr RegexOptions kSearch = {.search = true};

void CheckPattern(std::string_view pattern, RegexOptions options, const Texts& accepted,
                  const Texts& refused) {
  CAPTURE(pattern);
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, options, &rules);
  REQUIRE_MESSAGE(expr.ok(), expr.status().ToString());
  const GrammarReference reference(rules, *expr);
  for (const std::string& text : accepted) CHECK_MESSAGE(reference.Accepts(text), "text: ", text);
  for (const std::string& text : refused) {
    CHECK_FALSE_MESSAGE(reference.Accepts(text), "text: ", text);
  }
}

void CheckMatches(std::string_view pattern, const Texts& accepted, const Texts& refused) {
  CheckPattern(pattern, kFullMatch, accepted, refused);
}

void CheckFinds(std::string_view pattern, const Texts& accepted, const Texts& refused) {
  CheckPattern(pattern, kSearch, accepted, refused);
}

// The caret stands below the character at `column`, which counts from 0.
void CheckError(std::string_view pattern, absl::StatusCode code, size_t column,
                std::string_view words) {
  CAPTURE(pattern);
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, kFullMatch, &rules);
  REQUIRE_FALSE(expr.ok());
  CHECK(expr.status().code() == code);
  const std::string message(expr.status().message());
  CHECK_MESSAGE(message.find(words) != std::string::npos, message);
  CHECK_MESSAGE(message.ends_with("\n  " + std::string(column, ' ') + "^"), message);
}

void CheckInvalid(std::string_view pattern, size_t column, std::string_view words) {
  CheckError(pattern, absl::StatusCode::kInvalidArgument, column, words);
}

void CheckUnsupported(std::string_view pattern, size_t column, std::string_view words) {
  CheckError(pattern, absl::StatusCode::kUnimplemented, column, words);
}

TEST_SUITE("grammar") {
  TEST_CASE("a pattern's literals, groups and alternatives") {
    CheckMatches("", {""}, {"a"});
    CheckMatches("abc", {"abc"}, {"", "ab", "abcd", "xabc"});
    CheckMatches("a|bc|", {"a", "bc", ""}, {"b", "abc"});
    CheckMatches("(a|bc)?z", {"z", "az", "bcz"}, {"", "a", "bc", "bz", "abcz"});
    CheckMatches("(a|bc)*", {"", "a", "bc", "abc", "bca", "bcbca"}, {"b", "c", "ac", "ab"});
    CheckMatches("(?:ab|ac|db|dc)(?<tail>x|yz)(?P<end_2>)", {"abx", "acyz", "dbx", "dcyz"},
                 {"ab", "adx", "abxyz", "abz"});
    CheckMatches("()", {""}, {"a"});
    CheckMatches(
        "\xC3\xA9\xE2\x82\xAC+", {"\xC3\xA9\xE2\x82\xAC", "\xC3\xA9\xE2\x82\xAC\xE2\x82\xAC"},
        {"\xC3\xA9", "\xC3\xA9\xE2\x82\xAC\xAC", "\xC3\xA9\xE2\x82\xAC\xC3\xA9\xE2\x82\xAC"});
    // Both dialects read brackets and braces that begin nothing as themselves.
    CheckMatches("{a}]", {"{a}]"}, {"a"});
  }

  TEST_CASE("quantifiers count, and lazy ones have the same language") {
    CheckMatches("ab*", {"a", "ab", "abbb"}, {"", "b", "abab"});
    CheckMatches("ab+?", {"ab", "abbb"}, {"a"});
    CheckMatches("ab??", {"a", "ab"}, {"abb"});
    CheckMatches("a{2}", {"aa"}, {"", "a", "aaa"});
    CheckMatches("a{2,}?", {"aa", "aaaaa"}, {"a"});
    CheckMatches("xa{1,3}y", {"xay", "xaay", "xaaay"}, {"xy", "xaaaay"});
    CheckMatches("a{0}b{0,0}", {""}, {"a", "b"});
    CheckMatches("(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"});
    CheckMatches("(a|){3}", {"", "a", "aaa"}, {"aaaa"});
    CheckMatches("(a*)*b", {"b", "aab"}, {"a"});
    CheckMatches("(?:a{2}){2}", {"aaaa"}, {"aa", "aaa"});
  }

  TEST_CASE("classes and escapes stand for the characters of ECMA-262") {
    CheckMatches("[^a-cx-z]+", {"d", "w", "dw", "\n", "\xE2\x82\xAC"}, {"a", "x", "da", "wy", ""});
    CheckMatches("[^a]+", {"bbb", "\xC2\xA9", "\xE2\xA1\xA1"},
                 {"bba", "\xE2\xA1\xA1\xA1", "\xE2\xA1\xE2\xA1"});
    CheckMatches("[-a]", {"-", "a"}, {"b"});
    CheckMatches("[a-]", {"-", "a"}, {"b"});
    CheckMatches("[a-c-e]", {"a", "c", "-", "e"}, {"d"});
    CheckMatches("[+--]", {"+", ",", "-"}, {"."});
    CheckMatches(R"([\w-])", {"-", "a", "_", "9"}, {"\xC3\xA9"});
    CheckMatches(R"([\]\[\\^])", {"]", "[", "\\", "^"}, {"a"});
    CheckMatches(R"([\d\-x])", {"0", "-", "x"}, {"d", "\\"});
    CheckMatches(R"([\b])", {"\b"}, {"b"});
    CheckMatches(R"([^\S ])", {"\t", "\xC2\xA0"}, {" ", "a"});
    CheckMatches("[a|.$(]", {"a", "|", ".", "$", "("}, {"b"});
    CheckMatches(".", {"a", "\xF0\x9F\x98\x80", "\0"s, "\xC2\x85"},
                 {"", "\n", "\r", "\xE2\x80\xA8", "\xE2\x80\xA9", "ab"});
    CheckMatches(R"(\d)", {"0", "9"}, {"a", "\xD9\xA0"});  // U+0660 is a digit of Python alone
    CheckMatches(R"(\w)", {"a", "Z", "_", "5"}, {"-", "\xC3\xA9"});
    CheckMatches(R"(\s)",
                 {"\t", "\n", "\v", "\f", "\r", " ", "\xC2\xA0", "\xEF\xBB\xBF", "\xE1\x9A\x80",
                  "\xE2\x80\x80", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                  "\xE2\x81\x9F", "\xE3\x80\x80"},
                 {"\x1C", "\x08", "\x0E", "\xC2\x85", "\xE2\x80\x8B", "\xE1\xA0\x8E"});
    CheckMatches(R"(\D\W\S)", {"a-b", "--\xC2\x85"}, {"1-b", "aab", "a- "});
    CheckMatches(R"(\n\r\t\f\v\0)", {"\n\r\t\f\v\0"s}, {"nrtfv0"});
    CheckMatches(R"(\x41\u00e9\u{1F600}\uD83D\uDE00\cJ)",
                 {"A\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80\n"}, {"A"});
    CheckMatches(R"(\^\$\\\.\*\+\?\(\)\[\]\{\}\|\/\-\"\ )", {R"(^$\.*+?()[]{}|/-" )"}, {""});
  }

  TEST_CASE("a search allows any text around the match") {
    CheckFinds("b",
               {"b", "abc", "\nb\n",
                "\xC3\xA9"
                "b"},
               {"", "a",
                "\xFF"
                "b"});
    CheckFinds("", {"", "a"}, {"\xFF"});
    CheckFinds("^b", {"b", "bc", "b\n"}, {"ab", "a\nb", ""});
    CheckFinds("b$", {"b", "ab", "\nb"}, {"bc", "b\n", ""});
    CheckFinds("^b$", {"b"}, {"ab", "bc", "b\n", ""});
    CheckFinds("^a|b$", {"a", "b", "ax", "xb", "axb"}, {"", "xa", "bx", "xabx"});
    CheckFinds("(^a|b)c", {"ac", "acx", "bc", "xbcx", "aabc"}, {"xac", "a", "bac"});
    CheckFinds("(^|,)x(,|$)", {"x", "x,y", "y,x", "y,x,y"}, {"yx", "xy", "y,xy", ""});
    CheckFinds("^[a-zA-Z0-9_-]*$", {"He_llo-12", ""}, {"!", "Hello World"});
    CheckFinds("^$", {""}, {"a", "\n"});
  }

  TEST_CASE("anchors are exact at any place of a pattern") {
    CheckMatches("^ab$", {"ab"}, {"", "a"});
    CheckMatches("a^b", {}, {"ab", "a^b", "b", "a", ""});
    CheckMatches("a$b", {}, {"ab", "a", "b"});
    CheckMatches("a*^b", {"b"}, {"ab", "aab", "a", ""});
    CheckMatches("b$a*", {"b"}, {"ba", "a", ""});
    CheckMatches("(a|^)b", {"ab", "b"}, {"aab", ""});
    CheckMatches("(^a|b)+", {"a", "b", "ab", "abb"}, {"aa", "ba", ""});
    CheckMatches("(a|b$)+", {"a", "b", "ab", "aab"}, {"ba", "bb", ""});
    CheckMatches("(^a|b){2}", {"ab", "bb"}, {"aa", "ba", "a", "b", "abb"});
    CheckMatches("(^a|b|){2}", {"", "a", "b", "ab", "bb"}, {"aa", "ba", "abb"});
    CheckMatches("(^|a){3}", {"", "a", "aa", "aaa"}, {"aaaa"});
    CheckMatches("(b^|a){2}", {"aa"}, {"", "a", "ba", "aba"});
    CheckMatches("(^a$|b){1,2}", {"a", "b", "bb"}, {"ab", "ba", "aa", ""});
    CheckMatches("^^a$$", {"a"}, {""});
    CheckMatches("$^", {""}, {"a"});
    CheckMatches("(^$)*a", {"a"}, {""});
    CheckFinds("$^", {""}, {"a"});
    CheckFinds("($|a)(^|b)", {"", "ab", "xab"}, {"a", "b"});
    CheckFinds("a^b", {}, {"ab", "a^b", ""});
  }

  TEST_CASE("wrong patterns are refused with their place") {
    CheckInvalid("a{,3}", 1, "write {0,n}");
    CheckInvalid("a{3,2}", 1, "{3,2}");
    CheckInvalid("a{3", 1, "{m,n}");
    CheckInvalid("a{3,b}", 1, "{m,n}");
    CheckInvalid("b[z-a]", 2, "exchange its ends");
    CheckInvalid("a++", 2, "possessive");
    CheckInvalid("a**", 2, "quantifier follows");
    CheckInvalid("a???", 3, "quantifier follows");
    CheckInvalid("a{2}{3}", 4, "quantifier follows");
    CheckInvalid("*a", 0, "nothing to repeat");
    CheckInvalid("a|+", 2, "nothing to repeat");
    CheckInvalid("(?:?)", 3, "nothing to repeat");
    CheckInvalid("{2}", 0, "nothing to repeat");
    CheckInvalid("^*", 1, "anchor");
    CheckInvalid("a$+", 2, "anchor");
    CheckInvalid("x(a", 1, "write )");
    CheckInvalid("(a))", 3, "closes no group");
    CheckInvalid("a[bc", 1, "no end");
    CheckInvalid("[a-", 0, "no end");
    CheckInvalid("[]a]", 0, "empty");
    CheckInvalid("[^]", 0, "empty");
    CheckInvalid(R"([\d-z])", 1, "end of a range");
    CheckInvalid(R"([a-\w])", 1, "end of a range");
    CheckInvalid("ab\\", 2, "after a backslash");
    CheckInvalid("[\\", 1, "after a backslash");
    CheckInvalid(R"(\q)", 0, "no escape \\q");
    CheckInvalid(R"([\B])", 1, "no escape \\B");
    CheckInvalid(R"(\x4)", 0, "2 hexadecimal digits");
    CheckInvalid(R"(\u12g4)", 0, "4 hexadecimal digits");
    CheckInvalid(R"(\u{110000})", 0, "10FFFF");
    CheckInvalid(R"(\u{})", 0, "10FFFF");
    CheckInvalid(R"(\u{D800})", 0, "surrogates");
    CheckInvalid(R"(\uD83D)", 0, "surrogate");
    CheckInvalid(R"(\uDE00\uD83D)", 0, "surrogate");
    CheckInvalid(R"(\uD83D\u0041)", 0, "surrogate");
    CheckInvalid(R"(\01)", 0, "octal");
    CheckInvalid(R"(\c1)", 0, "letter");
    CheckInvalid("(?<1a>b)", 0, "name");
    CheckInvalid("(?<>b)", 0, "name");
    CheckInvalid("(?<a", 0, "name");
    CheckInvalid("ab\xFF", 2, "not UTF-8");
    CheckInvalid("\xC3\xA9\xE2\x82", 1, "not UTF-8");
    CheckInvalid("\xC3\xA9*+", 2, "quantifier follows");  // a column is a character
  }

  TEST_CASE("lookaheads at the begin are operations on whole texts") {
    // They were refused, and real schemas have them there.
    CheckFinds("^(?!@@)[\\w@]+$", {"@a", "a@@", "@"}, {"@@", "@@a", "", "-"});
    CheckFinds("^(?=[^=]+$)(?!\\s+$)(.|\n)+$", {"a", " a", "a\n"}, {"", " ", "a=b", "\n"});
    CheckFinds("^(?!^lucene\\.|mongo\\.).*", {"", "a", "lucene"},
               {"lucene.", "lucene.x", "mongo.a"});
    CheckFinds("^(?!pattern$).*$", {"", "patterns", "x"}, {"pattern"});
    CheckFinds("(^(?!a)b*$)|^c", {"", "bb", "cx"}, {"a", "ba", "xc"});
    CheckFinds("^(?=(?!ab)a).", {"a", "ac"}, {"ab", "b", ""});
    CheckFinds("^(?=[)(|\\]]x)", {")x", "]xy"}, {"x", ""});
    CheckMatches("(?=a)[ab]{2}", {"ab", "aa"}, {"ba", "a", "abb"});
    CheckMatches("(?!a|b$)[ab]{1,2}", {"ba", "bb"}, {"a", "b", "ab"});
    for (const char* pattern : {"^(?=a", "^(?!a)b)", "^(?!a)*", "^(?!a)(b", "^(?=[a"}) {
      GrammarRules rules;
      CHECK_FALSE(ParseRegex(pattern, kSearch, &rules).ok());
    }
  }

  TEST_CASE("what cannot be enforced is refused by name") {
    CheckUnsupported("x(?=a)", 1, "lookaround");
    CheckUnsupported("a|b(?!a)", 3, "lookaround");
    CheckUnsupported("^((?!a).)*$", 2, "lookaround");
    CheckUnsupported("a(?=b)|(c)", 1, "begin the pattern with ^");
    CheckUnsupported("(?<=a)", 0, "lookaround");
    CheckUnsupported("(?<!a)", 0, "lookaround");
    CheckUnsupported("(?>a)", 0, "atomic");
    CheckUnsupported("(?i)a", 0, "flags");
    CheckUnsupported("(?i:a)", 0, "flags");
    CheckUnsupported("(?#a)", 0, "comment");
    CheckUnsupported("(?(1)a|b)", 0, "condition");
    CheckUnsupported("(?P=a)", 0, "backreference");
    CheckUnsupported(R"((a)\1)", 3, "backreference");
    CheckUnsupported(R"((?<a>b)\k<a>)", 7, "backreference");
    CheckUnsupported(R"(a\b)", 1, R"(\b: word boundaries)");
    CheckUnsupported(R"(a\B)", 1, R"(\B: word boundaries)");
    CheckUnsupported(R"(\p{L})", 0, "Unicode property");
    CheckUnsupported(R"([a\P{L}])", 2, "Unicode property");
    CheckUnsupported(R"(\Aa\Z)", 0, "anchors");
    CheckUnsupported("[[:alpha:]]", 1, "POSIX");
  }

  TEST_CASE("limits bound what a pattern may cost") {
    const auto code_of = [](const std::string& pattern) {
      GrammarRules rules;
      return ParseRegex(pattern, kSearch, &rules).status().code();
    };
    const auto repeated = [](std::string_view text, size_t count) {
      std::string all;
      for (size_t i = 0; i < count; ++i) all += text;
      return all;
    };
    const auto nested = [&](size_t depth, std::string_view inner, std::string_view close) {
      return repeated("(", depth) + std::string(inner) + repeated(close, depth);
    };
    CHECK(code_of(std::string(kRegexSizeMaxBytes, 'a')) == absl::StatusCode::kOk);
    CHECK(code_of(std::string(kRegexSizeMaxBytes + 1, 'a')) ==
          absl::StatusCode::kResourceExhausted);
    CHECK(code_of(nested(kRegexDepthMax, "a", ")*")) == absl::StatusCode::kOk);
    CHECK(code_of(nested(kRegexDepthMax + 1, "a", ")")) == absl::StatusCode::kResourceExhausted);
    CHECK(code_of("a{65536}") == absl::StatusCode::kOk);
    CHECK(code_of("a{65537}") == absl::StatusCode::kResourceExhausted);
    CHECK(code_of("a{0,99999999999999999999}") == absl::StatusCode::kResourceExhausted);
    // Without a limit, each repetition around an anchor would double the expression.
    CHECK(code_of(nested(kRegexAnchorRepeatsMax, "(^|a)b", "){2}")) == absl::StatusCode::kOk);
    CHECK(code_of(nested(kRegexAnchorRepeatsMax + 1, "(^|a)b", "){2}")) ==
          absl::StatusCode::kResourceExhausted);
    CHECK(code_of(nested(kRegexDepthMax, "^a", ")")) == absl::StatusCode::kOk);
    CHECK(code_of(repeated("(^|a|$)", kRegexSizeMaxBytes / 7)) == absl::StatusCode::kOk);
    CHECK(code_of(repeated("^", kRegexSizeMaxBytes)) == absl::StatusCode::kOk);
  }
}

}  // namespace
}  // namespace specd::grammar
