#include "tests/support/grammar_reference.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace specd::grammar {
namespace {

using std::string_literals::operator""s;

void CheckTexts(const GrammarReference& reference, const std::vector<std::string>& accepted,
                const std::vector<std::string>& prefixes,
                const std::vector<std::string>& impossible) {
  for (const std::string& text : accepted) {
    CAPTURE(text);
    CHECK(reference.Accepts(text));
    for (size_t size = 0; size <= text.size(); ++size) {
      CHECK(reference.IsPrefix(text.substr(0, size)));
    }
  }
  for (const std::string& text : prefixes) {
    CAPTURE(text);
    CHECK_FALSE(reference.Accepts(text));
    CHECK(reference.IsPrefix(text));
  }
  for (const std::string& text : impossible) {
    CAPTURE(text);
    CHECK_FALSE(reference.Accepts(text));
    CHECK_FALSE(reference.IsPrefix(text));
  }
}

TEST_SUITE("grammar") {
  TEST_CASE("the reference accepts sequences, alternatives and literals") {
    GrammarRules rules;
    const ExprId cross = rules.Sequence(
        {rules.AnyOf({rules.Literal("ab"), rules.Literal("ac"), rules.Literal("db")}),
         rules.AnyOf({rules.Literal("x"), rules.Literal("yz")})});
    CheckTexts({rules, cross}, {"abx", "abyz", "acx", "acyz", "dbx", "dbyz"},
               {"", "a", "d", "ab", "aby"}, {"x", "b", "abxx", "dc", "abz", "abyzz"});
    CheckTexts({rules, rules.Empty()}, {""}, {}, {"a"});
    CheckTexts({rules, rules.Never()}, {}, {}, {"", "a"});
    CheckTexts({rules, rules.Literal("a\0\xFF"s)}, {"a\0\xFF"s}, {"a\0"s}, {"a\xFF"});
  }

  TEST_CASE("the reference counts repetitions") {
    GrammarRules rules;
    const ExprId a = rules.Literal("a");
    CheckTexts({rules, rules.Repeat(a, 2, 3)}, {"aa", "aaa"}, {"", "a"}, {"aaaa", "b"});
    CheckTexts({rules, rules.Repeat(a, 2, kUnbounded)}, {"aa", "aaaaaaa"}, {"", "a"}, {"ab"});
    CheckTexts({rules, rules.Optional(a)}, {"", "a"}, {}, {"aa"});
    // A part that may be empty fills any count.
    const ExprId nullable = rules.Repeat(rules.Optional(a), 3, 4);
    CheckTexts({rules, nullable}, {"", "a", "aaa", "aaaa"}, {}, {"aaaaa"});
    CheckTexts({rules, rules.Star(rules.Star(a))}, {"", "a", "aaa"}, {}, {"b"});
    const ExprId pairs = rules.Repeat(rules.Repeat(a, 2, 2), 1, 2);
    CheckTexts({rules, pairs}, {"aa", "aaaa"}, {"", "a", "aaa"}, {"aaaaa"});
  }

  TEST_CASE("the reference follows recursive rules, also left recursive and empty ones") {
    GrammarRules rules;
    const RuleId left = rules.AddRule("left");  // left = left "a" | "b"
    rules.Define(left, rules.AnyOf({rules.Sequence({rules.Call(left), rules.Literal("a")}),
                                    rules.Literal("b")}));
    rules.SetRoot(left);
    CheckTexts(GrammarReference(rules), {"b", "ba", "baaa"}, {""}, {"a", "bb", "bab"});

    const RuleId pair = rules.AddRule("pair");  // pair = "(" pair ")" | nothing
    rules.Define(
        pair,
        rules.Optional(rules.Sequence({rules.Literal("("), rules.Call(pair), rules.Literal(")")})));
    CheckTexts({rules, rules.Call(pair)}, {"", "()", "((()))"}, {"(", "((", "(()"}, {")", "()("});

    // hidden = pair hidden "x" | "y": the left recursion stands after an empty rule.
    const RuleId hidden = rules.AddRule("hidden");
    rules.Define(
        hidden,
        rules.AnyOf({rules.Sequence({rules.Call(pair), rules.Call(hidden), rules.Literal("x")}),
                     rules.Literal("y")}));
    CheckTexts({rules, rules.Call(hidden)}, {"y", "yx", "yxx", "()yx", "()(())yxx"},
               {"", "(", "()", "()y", "()()yx"}, {"x", "yy", "yxy", ")"});

    // empty = empty empty | nothing | "z"
    const RuleId empty = rules.AddRule("empty");
    rules.Define(empty, rules.AnyOf({rules.Sequence({rules.Call(empty), rules.Call(empty)}),
                                     rules.Empty(), rules.Literal("z")}));
    CheckTexts({rules, rules.Call(empty)}, {"", "z", "zzz"}, {}, {"a"});
    const ExprId twice = rules.Sequence({rules.Call(empty), rules.Call(empty), rules.Literal("!")});
    CheckTexts({rules, twice}, {"!", "z!", "zzz!"}, {"", "z"}, {"!!"});
  }

  TEST_CASE("no text begins with one that only an empty language could continue") {
    GrammarRules rules;
    const RuleId endless = rules.AddRule("endless");  // endless = "a" endless
    rules.Define(endless, rules.Sequence({rules.Literal("a"), rules.Call(endless)}));
    CheckTexts({rules, rules.Call(endless)}, {}, {}, {"", "a", "aa"});
    const ExprId branch = rules.AnyOf(
        {rules.Sequence({rules.Literal("b"), rules.Call(endless)}), rules.Literal("c")});
    CheckTexts({rules, branch}, {"c"}, {}, {"b", "ba"});
    // An optional part without a text is as if it were not there.
    const ExprId skipped =
        rules.Sequence({rules.Literal("x"), rules.Star(rules.Call(endless)), rules.Literal("y")});
    CheckTexts({rules, skipped}, {"xy"}, {"x"}, {"xa"});
    const RuleId undefined = rules.AddRule("undefined");
    CheckTexts({rules, rules.Call(undefined)}, {}, {}, {""});
  }

  TEST_CASE("the reference reads characters as UTF-8 and nothing else") {
    GrammarRules rules;
    // Case 16 of the collected ones: [^a]+
    const ExprId not_a = rules.Plus(rules.Chars(CharSet::One('a').Negated()));
    CheckTexts({rules, not_a}, {"bbb", "\xC2\xA9", "\xE2\xA1\xA1", "\0"s, "\xF4\x8F\xBF\xBF"},
               {"\xE2\xA1", "\xE2", "\xF0", "b\xC2", "\xF4\x8F", "\xED\x9F"},
               {"bba", "\xE2\xA1\xA1\xA1", "\xE2\xA1\xE2\xA1", "\x80", "\xC0", "\xC1", "\xC0\x80",
                "\xE0\x80", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90", "\xF5", "\xFF",
                "\xC2\0"s, "\xC2\x41"});
    // U+00E9 C3 A9, U+20AC E2 82 AC, U+1F600 F0 9F 98 80
    CharSet few = CharSet::One(0xE9);
    few.Add(0x20AC, 0x20AC);
    few.Add(0x1F600, 0x1F600);
    CheckTexts({rules, rules.Chars(few)}, {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
               {"", "\xC3", "\xE2", "\xE2\x82", "\xF0\x9F\x98"},
               {"\xC3\xA8", "\xC2", "\xE2\x83", "\xE2\x82\xAD", "\xF0\x9E", "\xC3\xA9\xC3"});
    ByteSet bytes = ByteSet::Range(0xFE, 0xFF);
    bytes.Add(0);
    CheckTexts({rules, rules.Bytes(bytes)}, {"\0"s, "\xFE", "\xFF"}, {""}, {"\x01", "\xFD"});
  }

  TEST_CASE("the reference steps automata, and none of their dead ends") {
    GrammarRules rules;
    // a(b|d)*; "ax" leads to a state that accepts nothing.
    ByteDfa dfa;
    dfa.states = {{{{'a', 'a', 1}}, false},
                  {{{'b', 'b', 1}, {'d', 'd', 1}, {'x', 'x', 2}}, true},
                  {{{'x', 'x', 2}}, false}};
    const ExprId automaton = rules.Automaton(dfa);
    CheckTexts({rules, automaton}, {"a", "ab", "abdd"}, {""}, {"b", "ac", "ax", "abx"});
    const ExprId embedded = rules.Sequence({rules.Plus(automaton), rules.Literal("b!")});
    CheckTexts({rules, embedded}, {"ab!", "abb!", "aadab!"}, {"", "a", "abb"},
               {"b!", "a!", "ab!b"});
  }

  TEST_CASE("an ambiguous grammar is recognised in every way") {
    GrammarRules rules;
    // sum = sum "+" sum | "1" | "(" sum ")"
    const RuleId sum = rules.AddRule("sum");
    rules.Define(
        sum,
        rules.AnyOf({rules.Sequence({rules.Call(sum), rules.Literal("+"), rules.Call(sum)}),
                     rules.Literal("1"),
                     rules.Sequence({rules.Literal("("), rules.Call(sum), rules.Literal(")")})}));
    rules.SetRoot(sum);
    CheckTexts(GrammarReference(rules), {"1", "1+1", "(1+1)+1+(1)"}, {"", "1+", "(", "(1+1"},
               {"+", "1+)", "11", "(1))"});
  }
}

}  // namespace
}  // namespace specd::grammar
