// Random patterns against std::regex, an independent implementation of ECMA-262's dialect.
#include <doctest/doctest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "speculative/grammar/front_ends/regex.h"
#include "tests/support/grammar_reference.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

constexpr int kPatterns = GridSize({.full = 1500, .sanitized = 300});
constexpr size_t kTextSizeMax = 4;

class PatternWriter {
 public:
  explicit PatternWriter(uint32_t seed) : random_(seed) {}

  // Each alternative may begin with lookaheads, after ^ or not.
  std::string LookaheadPattern(const char* begin) {
    std::string pattern;
    do {
      std::string one = begin;
      for (uint32_t i = Draw(3); i > 0; --i) {
        one += (Draw(2) == 0 ? "(?=" : "(?!") + Pattern(1) + ")";
      }
      one += Alternative(1);
      if (!pattern.empty()) pattern += "|";
      pattern += Draw(4) == 0 ? "(" + one + ")" : one;
    } while (Draw(3) == 0);
    return Draw(6) == 0 ? "(?:" + pattern + ")" : pattern;
  }
  std::string Pattern(int depth) {
    std::string pattern = Alternative(depth);
    while (Draw(3) == 0) pattern += "|" + Alternative(depth);
    return pattern;
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  std::string Alternative(int depth) {
    std::string alternative;
    for (uint32_t i = Draw(4); i > 0; --i) alternative += Part(depth);
    return alternative;
  }
  std::string Part(int depth) {
    if (Draw(6) == 0) return Draw(2) == 0 ? "^" : "$";
    return Atom(depth) + Quantifier();
  }
  std::string Atom(int depth) {
    static constexpr const char* kAtoms[] = {"a",    "b",     "a",   ".",   "[ab]",
                                             "[^a]", R"(\n)", "\\w", "\\s", "[a\\n]"};
    if (depth > 0 && Draw(3) == 0) {
      return (Draw(2) == 0 ? "(" : "(?:") + Pattern(depth - 1) + ")";
    }
    return kAtoms[Draw(10)];
  }
  std::string Quantifier() {
    static constexpr const char* kQuantifiers[] = {"*",     "+",    "?",  "{2}", "{1,2}",
                                                   "{0,2}", "{2,}", "*?", "{0}", "{2,3}"};
    return Draw(2) == 0 ? "" : kQuantifiers[Draw(10)];
  }

  std::mt19937 random_;
};

std::vector<std::string> AllTexts() {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < kTextSizeMax; ++i) {
    for (const char c : {'a', 'b', '\n'}) texts.push_back(texts[i] + c);
  }
  return texts;
}

// Counts of texts that a pattern allows and of those that it refuses.
struct Counts {
  int num_accepted = 0;
  int num_refused = 0;
};

void CompareWithPeer(const std::string& pattern, bool is_search,
                     const std::vector<std::string>& texts, Counts* counts) {
  CAPTURE(pattern);
  CAPTURE(is_search);
  const std::regex peer(pattern, std::regex::ECMAScript);
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {.search = is_search}, &rules);
  REQUIRE_MESSAGE(expr.ok(), expr.status().ToString());
  const GrammarReference reference(rules, *expr);
  for (const std::string& text : texts) {
    const bool is_right = is_search ? std::regex_search(text, peer) : std::regex_match(text, peer);
    if (reference.Accepts(text) != is_right) FAIL_CHECK("text ", text, ": ", is_right);
    ++(is_right ? counts->num_accepted : counts->num_refused);
  }
}

TEST_SUITE("grammar") {
  TEST_CASE("random patterns match and find what std::regex matches and finds") {
    const std::vector<std::string> texts = AllTexts();
    PatternWriter writer(7);
    Counts counts;
    for (int i = 0; i < kPatterns; ++i) {
      const std::string pattern = writer.Pattern(2);
      CompareWithPeer(pattern, /*is_search=*/false, texts, &counts);
      CompareWithPeer(pattern, /*is_search=*/true, texts, &counts);
    }
    // The patterns are no trivial ones.
    CHECK(counts.num_accepted > kPatterns);
    CHECK(counts.num_refused > kPatterns);
  }

  TEST_CASE("random lookaheads at the begin of a pattern are those of std::regex") {
    const std::vector<std::string> texts = AllTexts();
    PatternWriter writer(8);
    Counts counts;
    for (int i = 0; i < kPatterns; ++i) {
      CompareWithPeer(writer.LookaheadPattern(i % 2 == 0 ? "" : "^"), /*is_search=*/false, texts,
                      &counts);
      CompareWithPeer(writer.LookaheadPattern("^"), /*is_search=*/true, texts, &counts);
    }
    CHECK(counts.num_accepted > kPatterns);
    CHECK(counts.num_refused > kPatterns);
  }
}

}  // namespace
}  // namespace specd::grammar
