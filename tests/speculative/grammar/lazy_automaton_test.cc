#include "speculative/grammar/lazy_automaton.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/grammar_rules.h"
#include "speculative/grammar/network.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

class Follower {
 public:
  explicit Follower(const GrammarRules& rules)
      : network_(*Network::Build(rules)), automaton_(&network_) {}

  StateId After(std::string_view text) {
    StateId state = automaton_.start();
    for (const char byte : text) state = automaton_.Step(state, static_cast<uint8_t>(byte));
    return state;
  }
  bool IsPrefix(std::string_view text) { return LazyAutomaton::IsAlive(After(text)); }
  bool Accepts(std::string_view text) {
    return IsPrefix(text) && automaton_.IsAccepting(After(text));
  }
  LazyAutomaton& automaton() { return automaton_; }

 private:
  Network network_;
  LazyAutomaton automaton_;
};

// Every text over `letters` of at most `length` letters.
std::vector<std::string> AllTexts(std::string_view letters, size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length) continue;
    for (const char letter : letters) texts.push_back(texts[i] + letter);
  }
  return texts;
}

void CheckAgainstReference(const GrammarRules& rules, std::string_view letters, size_t length) {
  Follower follower(rules);
  GrammarReference reference(rules);
  for (const std::string& text : AllTexts(letters, length)) {
    CAPTURE(text);
    REQUIRE(follower.IsPrefix(text) == reference.IsPrefix(text));
    REQUIRE(follower.Accepts(text) == reference.Accepts(text));
  }
}

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
        const auto min = static_cast<uint32_t>(random_() % 3);
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

  TEST_CASE("a set of states past the limit ends the text, and nothing else") {
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
    const std::string text(5000, 'a');
    CHECK(follower.After(text) == LazyAutomaton::kTooManyWays);
    CHECK(follower.IsPrefix(text.substr(0, 1500)));
    CHECK(follower.Accepts(text.substr(0, 100) + "cb"));
  }
}

}  // namespace
}  // namespace specd::grammar
