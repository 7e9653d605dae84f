#include "speculative/grammar/rules/counted_dfa.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

ByteDfa OfPattern(std::string_view pattern) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {}, &rules);
  REQUIRE(expr.ok());
  absl::StatusOr<ByteDfa> dfa = Determinize(rules, *expr);
  REQUIRE(dfa.ok());
  return *std::move(dfa);
}

ByteDfa OfLength(const CharacterCounts& counts) {
  GrammarRules rules;
  absl::StatusOr<ByteDfa> dfa =
      Determinize(rules, rules.Repeat(rules.Chars(CharSet::All()), counts.min, counts.max));
  REQUIRE(dfa.ok());
  return *std::move(dfa);
}

TEST_SUITE("grammar") {
  TEST_CASE("counted characters are the intersection with all texts of such a length") {
    const std::vector<CharacterCounts> counts = {
        {.min = 0, .max = 0}, {.min = 0, .max = 3},          {.min = 2, .max = 2},
        {.min = 1, .max = 5}, {.min = 3, .max = kUnbounded}, {.min = 0, .max = kUnbounded}};
    for (const char* pattern :
         {"", "[^x]*", "a*(bc)?", "\\S+(\\s\\S+){0,3}", "\xC3\xA9|[\\u0800-\\u{1F600}]{2,4}x",
          "(ab|abc){2}", "[a-\\u00FF]{1,7}"}) {
      for (const CharacterCounts& count : counts) {
        CAPTURE(pattern);
        CAPTURE(count.min);
        CAPTURE(count.max);
        const ByteDfa dfa = OfPattern(pattern);
        const absl::StatusOr<ByteDfa> counted = CountCharacters(dfa, count);
        const absl::StatusOr<ByteDfa> expected = Intersect(dfa, OfLength(count));
        REQUIRE(counted.ok());
        REQUIRE(expected.ok());
        CHECK(AreEqual(*counted, *expected));
      }
    }
    const absl::StatusOr<ByteDfa> nothing = CountCharacters(ByteDfa(), {.min = 0, .max = 9});
    REQUIRE(nothing.ok());
    CHECK(nothing->IsEmpty());
  }

  TEST_CASE("a long maximum beside a pattern costs a state for each character, not for its bytes") {
    // The automaton of the length alone, which was made first, is past the limit.
    const ByteDfa data = OfPattern("data:image/(jpg|png);base64,[0-9a-zA-Z+/=]*");
    const absl::StatusOr<ByteDfa> counted = CountCharacters(data, {.min = 0, .max = 32767});
    REQUIRE(counted.ok());
    CHECK(counted->states.size() < 33000);
    CHECK(counted->Accepts("data:image/png;base64," + std::string(32767 - 22, 'A')));
    CHECK_FALSE(counted->Accepts("data:image/png;base64," + std::string(32767 - 21, 'A')));
  }

  TEST_CASE("counting characters is bounded") {
    const ByteDfa words = OfPattern("(\\S+\\s+){0,99}\\S+");
    CHECK(CountCharacters(words, {.min = 0, .max = 5000}).status().code() ==
          absl::StatusCode::kResourceExhausted);
    const absl::Status refusal = Budget::Run({.units = 1000}, [&] {
      const auto counted = CountCharacters(words, {.min = 0, .max = 50});
      CHECK(!counted.ok());
    });
    CHECK(refusal.code() == absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace specd::grammar
