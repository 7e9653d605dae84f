// Random patterns against std::regex, an independent implementation of ECMA-262's dialect.
#include <doctest/doctest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "speculative/grammar/regex.h"
#include "tests/support/grammar_reference.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

constexpr int kPatterns = GridSize({.full = 1500, .sanitized = 300});
constexpr size_t kTextSizeMax = 4;

class PatternWriter {
 public:
  explicit PatternWriter(uint32_t seed) : random_(seed) {}

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

TEST_SUITE("grammar") {
  TEST_CASE("random patterns match and find what std::regex matches and finds") {
    const std::vector<std::string> texts = AllTexts();
    PatternWriter writer(7);
    int num_accepted = 0;
    int num_refused = 0;
    for (int i = 0; i < kPatterns; ++i) {
      const std::string pattern = writer.Pattern(2);
      CAPTURE(pattern);
      const std::regex peer(pattern, std::regex::ECMAScript);
      GrammarRules rules;
      const absl::StatusOr<ExprId> full = ParseRegex(pattern, {.search = false}, &rules);
      const absl::StatusOr<ExprId> search = ParseRegex(pattern, {.search = true}, &rules);
      REQUIRE_MESSAGE(full.ok(), full.status().ToString());
      REQUIRE(search.ok());
      const GrammarReference matches(rules, *full);
      const GrammarReference finds(rules, *search);
      for (const std::string& text : texts) {
        const bool is_match = std::regex_match(text, peer);
        const bool is_found = std::regex_search(text, peer);
        if (matches.Accepts(text) != is_match) FAIL_CHECK("match of ", text, ": ", is_match);
        if (finds.Accepts(text) != is_found) FAIL_CHECK("search of ", text, ": ", is_found);
        ++(is_match ? num_accepted : num_refused);
      }
    }
    // The patterns are no trivial ones.
    CHECK(num_accepted > kPatterns);
    CHECK(num_refused > kPatterns);
  }
}

}  // namespace
}  // namespace specd::grammar
