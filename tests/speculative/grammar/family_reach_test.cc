#include "speculative/grammar/masks/family_reach.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/masks/mask_builder.h"

namespace specd::grammar {
namespace {

// One token for each family, so that all of them are there.
VocabularySlices Families() {
  Vocabulary::Builder builder;
  builder.Set(0, "a", {});
  return MakeVocabularySlices(TokenTrie::Build(std::move(builder).Build(), 1));
}

struct Case {
  const char* ebnf;
  const char* text;  // the state is behind it
  const char* family;
  uint32_t count;
  bool is_end;
};

// By the definition of the grammar.
const Case kCases[] = {
    {"root ::= [a-z]*", "", "lower-case letters", kUnbounded, false},
    {"root ::= [a-z]*", "", "letters", 0, false},
    {"root ::= [a-z]*", "", "digits", 0, true},
    {"root ::= [a-z]{0,5}", "", "lower-case letters", 5, true},
    {"root ::= [a-z]{0,5}", "ab", "lower-case letters", 3, true},
    {"root ::= [a-z]{3,5} [a-y]", "", "lower-case letters", 5, false},
    {"root ::= [a-z]{16} [0-9]", "", "lower-case letters", 16, true},
    {"root ::= [a-z]{17}", "", "lower-case letters", 16, false},
    {"root ::= [a-z] [a-z0-9_]{0,31}", "", "lower-case letters", 16, false},
    {"root ::= [a-z] [a-z0-9_]{0,31}", "a", "digits", 16, false},
    {"root ::= [a-z] [a-z0-9_]{0,3}", "a", "digits", 3, true},
    {"root ::= [a-z] [a-z0-9_]{0,3}", "a", "letters, digits, _ and -", 0, false},
    {"root ::= \" \" [A-Za-z]*", "", "space and letters", kUnbounded, false},
    {"root ::= \" \" [A-Za-z]{2}", "", "space and letters", 3, true},
    {"root ::= \" \" [A-Za-z]{2}", " a", "space and letters", 0, true},
    // The state of the begin comes again, and no letter may follow it.
    {"root ::= (\" \" [A-Za-z])* \".\"", "", "space and letters", 2, true},
    // One path that ends, and one that goes on.
    {"root ::= \"a\" [a-z]{2} | [b-z] [a-z]*", "", "lower-case letters", 3, false},
    // Two states in turn.
    {"root ::= ([a-z] [a-z0-9])*", "", "lower-case letters", kUnbounded, false},
    {"root ::= ([a-z] [a-z0-9])*", "", "digits", 0, true},
    {"root ::= [^\\n]{1,3}", "", "characters of a line", 3, true},
    {"root ::= [^\\n]{1,3}", "\xE4\xBD", "characters of a line", 0, true},
    {"root ::= [^\\n\"\\\\]{1,3}", "x", "characters of a string", 2, true},
    {"root ::= [^\\n\"\\\\]*", "x", "characters of a string", kUnbounded, false},
    {"root ::= [^\\n\"\\\\]*", "x", "characters of a line", 0, false},
    {"root ::= [^\\nÄ]*", "x", "characters of a line", 0, false},
    {"root ::= [^\\nÄ]*", "x", "ASCII of a string", kUnbounded, false},
    {"root ::= [^\\n]{1,30}", "", "characters of a line", 16, false},
};

TEST_SUITE("unit") {
  TEST_CASE("a look finds how many characters may follow") {
    const VocabularySlices vocabulary = Families();
    for (const Case& c : kCases) {
      CAPTURE(c.ebnf);
      CAPTURE(c.text);
      CAPTURE(c.family);
      GrammarRules rules;
      const auto root = ParseEbnf(c.ebnf, {}, &rules);
      REQUIRE_MESSAGE(root.ok(), root.status().ToString());
      const RuleId rule = rules.AddRule("all");
      rules.Define(rule, *root);
      rules.SetRoot(rule);
      const Network network = *Network::Build(rules);
      LazyAutomaton automaton(&network);
      const StateId state = automaton.StepText(automaton.start(), c.text);
      REQUIRE(LazyAutomaton::IsAlive(state));
      const auto family =
          std::find_if(vocabulary.families.begin(), vocabulary.families.end(),
                       [&](const TokenFamily& each) { return each.name == c.family; });
      REQUIRE(family != vocabulary.families.end());
      FamilyReach reach(&*family, &automaton, state);
      while (reach.StepOn() == FamilyReach::Progress::kMore) {
      }
      CHECK(reach.count() == c.count);
      CHECK(reach.is_end() == c.is_end);
    }
  }
}

}  // namespace
}  // namespace specd::grammar
