#include "speculative/grammar/states/lazy_automaton.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "tests/speculative/grammar/follower.h"

namespace specd::grammar {
namespace {

// Rules over a and b with every kind of expression; calls may be left recursive, hidden behind
// rules with the empty text, or lead nowhere.
class RandomRules {
 public:
  explicit RandomRules(uint64_t seed) : random_(seed) {
    const size_t num_rules = 1 + random_() % 4;
    for (size_t i = 0; i < num_rules; ++i) rules_.AddRule("r" + std::to_string(i));
    for (RuleId rule = 0; rule < num_rules; ++rule) rules_.Define(rule, Any(4));
    rules_.SetRoot(0);
  }
  const GrammarRules& rules() const { return rules_; }

 private:
  ExprId Any(int depth) {
    switch (depth == 0 ? random_() % 4 : random_() % 10) {
      case 0:
        return rules_.Literal("a");
      case 1:
        return rules_.Literal("b");
      case 2:
        return rules_.Bytes(ByteSet::Range('a', 'b'));
      case 3:
        return rules_.Call(static_cast<RuleId>(random_() % rules_.num_rules()));
      case 4:
        return rules_.Empty();
      case 5:
      case 6:
        return rules_.AnyOf({Any(depth - 1), Any(depth - 1)});
      case 7:
      case 8:
        return rules_.Sequence({Any(depth - 1), Any(depth - 1)});
      default: {
        const auto min = static_cast<uint32_t>(random_() % (random_() % 2 == 0 ? 3 : 7));
        return rules_.Repeat(
            Any(depth - 1), min,
            random_() % 2 == 0 ? kUnbounded : min + static_cast<uint32_t>(random_() % 6));
      }
    }
  }

  std::mt19937_64 random_;
  GrammarRules rules_;
};

TEST_SUITE("unit") {
  // Bug: each letter could be a level of its own, so states grew with their texts, and an opened
  // constraint died when one was long.
  TEST_CASE("texts that nest as a star in a star have one state, however long they are") {
    for (const char* text : {"root ::= [ab] root*", "root ::= root root | [ab]",
                             "root ::= item+\nitem ::= [ab] item*"}) {
      CAPTURE(text);
      GrammarRules rules;
      const RuleId start = rules.AddRule("start");
      rules.SetRoot(start);
      const auto root = ParseEbnf(text, {}, &rules);
      REQUIRE(root.ok());
      rules.Define(start, *root);
      const auto network = Network::Build(rules);
      REQUIRE(network.ok());
      LazyAutomaton automaton(&*network);
      const StateId three = automaton.StepText(automaton.start(), "aba");
      CHECK(automaton.StepText(three, "baba") == three);
    }
  }

  TEST_CASE("left recursion, direct, through another rule and behind an empty rule") {
    for (int form = 0; form < 4; ++form) {
      CAPTURE(form);
      GrammarRules rules;
      const RuleId root = rules.AddRule("root");
      const RuleId other = rules.AddRule("other");
      const ExprId a = rules.Literal("a");
      const ExprId b = rules.Literal("b");
      const ExprId call_root = rules.Call(root);
      const ExprId call_other = rules.Call(other);
      switch (form) {
        case 0:  // a*b, grouped to the left
          rules.Define(root, rules.AnyOf({rules.Sequence({call_root, a}), b}));
          rules.Define(other, a);
          break;
        case 1:  // root ::= other a | b, other ::= root b | a
          rules.Define(root, rules.AnyOf({rules.Sequence({call_other, a}), b}));
          rules.Define(other, rules.AnyOf({rules.Sequence({call_root, b}), a}));
          break;
        case 2:  // root ::= other root a | b, other ::= "b"?
          rules.Define(root, rules.AnyOf({rules.Sequence({call_other, call_root, a}), b}));
          rules.Define(other, rules.Optional(b));
          break;
        default:  // root ::= root root | a | ""
          rules.Define(root,
                       rules.AnyOf({rules.Sequence({call_root, call_root}), a, rules.Empty()}));
          rules.Define(other, a);
          break;
      }
      rules.SetRoot(root);
      CheckAgainstReference(rules, "ab", 7);
    }
  }

  TEST_CASE("a grammar without a text has no state that is alive") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, rules.Sequence({rules.Literal("a"), rules.Call(root)}));
    rules.SetRoot(root);
    const absl::StatusOr<Network> network = Network::Build(rules);
    REQUIRE(network.ok());
    CHECK(network->is_never());
    LazyAutomaton automaton(&*network);
    CHECK(!LazyAutomaton::IsAlive(automaton.start()));
  }

  TEST_CASE("only the empty text") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, rules.Empty());
    rules.SetRoot(root);
    CheckAgainstReference(rules, "ab", 2);
  }

  TEST_CASE("characters are read byte by byte, and none is cut") {
    for (const CharRange range :
         {CharRange{0, kCharMax}, CharRange{0x7F, 0x80}, CharRange{0x7FF, 0x10000},
          CharRange{0xD7FF, 0xE000}, CharRange{0x1234, 0x54321}, CharRange{0x10FFFF, 0x10FFFF}}) {
      CAPTURE(range.first);
      GrammarRules rules;
      const RuleId root = rules.AddRule("root");
      rules.Define(root, rules.Chars(CharSet::Range(range.first, range.last)));
      rules.SetRoot(root);
      Follower follower(rules);
      // Encoded here by the definition of UTF-8, with surrogates as other encoders would write
      // them.
      for (uint32_t c = 0; c <= kCharMax; c += c < 0x11000 ? 1 : 97) {
        std::string text;
        const auto add = [&](uint32_t bits) { text.push_back(static_cast<char>(bits)); };
        if (c < 0x80) {
          add(c);
        } else if (c < 0x800) {
          add(0xC0 | c >> 6), add(0x80 | (c & 63));
        } else if (c < 0x10000) {
          add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
        } else {
          add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 63));
          add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
        }
        const bool is_surrogate = c >= 0xD800 && c <= 0xDFFF;
        const bool is_in = c >= range.first && c <= range.last && !is_surrogate;
        REQUIRE_MESSAGE(follower.Accepts(text) == is_in, c);
      }
      // Spellings that are too long are no UTF-8.
      CHECK(!follower.IsPrefix("\xC0\x80"));
      CHECK(!follower.IsPrefix("\xE0\x80\x80"));
      CHECK(!follower.IsPrefix("\xF4\x90"));
    }
  }

  TEST_CASE("random rules: every text and every prefix, against the reference") {
    for (uint64_t seed = 0; seed < 400; ++seed) {
      CAPTURE(seed);
      CheckAgainstReference(RandomRules(seed).rules(), "ab", 7);
    }
  }

  TEST_CASE("a counted repetition that begins its own rule is expanded") {
    // root ::= (root "a"){5,7} | "b": the repetition calls the rule in which it stands.
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(
        root,
        rules.AnyOf({rules.Repeat(rules.Sequence({rules.Call(root), rules.Literal("a")}), 5, 7),
                     rules.Literal("b")}));
    rules.SetRoot(root);
    Follower follower(rules);
    for (int count = 1; count <= 9; ++count) {
      std::string text;
      for (int i = 0; i < count; ++i) text += "ba";
      CAPTURE(text);
      CHECK(follower.Accepts(text) == (count >= 5 && count <= 7));
    }
    CheckAgainstReference(rules, "ab", 14);
  }

  TEST_CASE("a count of a million takes no more nodes than a count of ten") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    const ExprId pair = rules.Sequence({rules.Literal("a"), rules.Optional(rules.Literal("b"))});
    rules.Define(root, rules.Repeat(pair, 3, 1000000));
    rules.SetRoot(root);
    CHECK(Network::Build(rules)->num_nodes() < 10);
    Follower follower(rules);
    CHECK(!follower.Accepts("abab"));
    CHECK(follower.Accepts("ababa"));
    std::string text;
    for (int i = 0; i < 100000; ++i) text += i % 3 == 0 ? "a" : "ab";
    CHECK(follower.IsPrefix(text));
  }

  TEST_CASE("counts that one text may have are one item where that is exact") {
    // After n letters the count of parts is anything from n / 2 to n.
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    const ExprId part = rules.AnyOf({rules.Literal("a"), rules.Literal("aa")});
    rules.Define(root, rules.Repeat(part, 90, 100));
    rules.SetRoot(root);
    Follower follower(rules);
    // With 100 parts of two letters, 90 to 200 letters have a count.
    for (size_t size = 80; size <= 210; ++size) {
      CAPTURE(size);
      CHECK(follower.Accepts(std::string(size, 'a')) == (size >= 90 && size <= 200));
      CHECK(follower.IsPrefix(std::string(size, 'a')) == (size <= 200));
    }
    CHECK(follower.automaton().num_states() < 250);
  }

  TEST_CASE("near states: far bounds do not tell states apart, near ones do") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    const ExprId part = rules.Sequence({rules.Literal("a"), rules.Optional(rules.Literal("b"))});
    rules.Define(root, rules.Sequence({rules.Repeat(part, 1000, 2000), rules.Literal("c")}));
    rules.SetRoot(root);
    const absl::StatusOr<Network> network = Network::Build(rules);
    LazyAutomaton automaton(&*network, &GrammarMemory::OfProcess(), 8);
    std::vector<StateId> after = {automaton.start()};
    for (int i = 0; i < 2000; ++i) after.push_back(automaton.Step(after.back(), 'a'));
    CHECK(automaton.Near(after[10]) == automaton.Near(after[980]));
    CHECK(automaton.Near(after[1100]) == automaton.Near(after[1900]));
    CHECK(automaton.Near(after[10]) != automaton.Near(after[1100]));
    CHECK(automaton.Near(after[991]) != automaton.Near(after[992]));
    CHECK(automaton.Near(after[1999]) != automaton.Near(after[2000]));
    // Texts of up to 8 bytes follow alike.
    for (const int at : {0, 980, 985, 991, 992, 999, 1000, 1500, 1985, 1991, 1992, 2000}) {
      for (const std::string& text : AllTexts("abc", 8)) {
        const StateId far = automaton.StepText(after[at], text);
        const StateId near = automaton.StepText(automaton.Near(after[at]), text);
        REQUIRE(LazyAutomaton::IsAlive(far) == LazyAutomaton::IsAlive(near));
        REQUIRE(automaton.IsAccepting(far) == automaton.IsAccepting(near));
      }
    }
  }

  TEST_CASE("right recursion and a long list keep the number of states small") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, rules.AnyOf({rules.Sequence({rules.Literal("a"), rules.Call(root)}),
                                    rules.Literal("b")}));
    rules.SetRoot(root);
    Follower follower(rules);
    CHECK(follower.Accepts(std::string(10000, 'a') + "b"));
    CHECK(follower.automaton().num_states() <= 3);
  }

  TEST_CASE("alternatives that read the same are one item, and each returns to its own") {
    // After n letters, any number of them up to n may still want its "b".
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, rules.AnyOf({rules.Sequence({rules.Literal("a"), rules.Call(root),
                                                    rules.Optional(rules.Literal("b"))}),
                                    rules.Literal("c")}));
    const RuleId any = rules.AddRule("any");
    rules.Define(any, rules.AnyOf({rules.Sequence({rules.Literal("a"), rules.Call(any)}),
                                   rules.Call(root)}));
    rules.SetRoot(any);
    Follower follower(rules);
    CHECK(follower.IsPrefix(std::string(5000, 'a')));
    for (int count = 0; count <= 12; ++count) {
      const std::string text =
          std::string(10, 'a') + "c" + std::string(static_cast<size_t>(count), 'b');
      CHECK(follower.Accepts(text) == (count <= 10));
    }
  }

  TEST_CASE("a state with more ways than the limit ends the text, and nothing else") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    std::vector<ExprId> ways;
    for (int i = 0; i < 5000; ++i) {
      const RuleId way = rules.AddRule("way");
      const ExprId name = rules.Literal("a" + std::to_string(i));
      rules.Define(way, rules.Sequence({name, rules.Optional(rules.Call(way))}));
      ways.push_back(rules.Call(way));
    }
    rules.Define(root, rules.AnyOf({rules.Sequence({rules.Literal("xx"), rules.AnyOf(ways)}),
                                    rules.Literal("xy")}));
    rules.SetRoot(root);
    Follower follower(rules);
    CHECK(follower.After("xx") == LazyAutomaton::kTooManyWays);
    CHECK(follower.IsPrefix("x"));
    CHECK(follower.Accepts("xy"));
  }
}

}  // namespace
}  // namespace specd::grammar
