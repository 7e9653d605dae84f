// The table against the operations on automata themselves.
#include "speculative/grammar/json_schema/dfa_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

ByteDfa DfaOf(const std::string& pattern) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {}, &rules);
  REQUIRE(expr.ok());
  return *Determinize(rules, *expr);
}

TEST_SUITE("unit") {
  TEST_CASE("a table of automata has one of each language, and computes what operations do") {
    DfaTable dfas;
    std::vector<SharedDfa> all;
    for (const char* const pattern : {"a*", "(aa)*|a(aa)*", "[ab]*", "b+", "", "(a|b)*"}) {
      all.push_back(dfas.Share(DfaOf(pattern)));
    }
    CHECK(all[0] == all[1]);
    CHECK(all[2] == all[5]);
    CHECK(all[0] != all[2]);
    for (const SharedDfa& a : all) {
      for (const SharedDfa& b : all) {
        CHECK(**dfas.Intersect(a, b) == *Intersect(*a, *b));
        CHECK(**dfas.Subtract(a, b) == *Subtract(*a, *b));
        CHECK(dfas.Overlap(a, b) == Overlap(*a, *b));
        CHECK(*dfas.Intersect(a, b) == *dfas.Intersect(b, a));
      }
    }
  }

  TEST_CASE("null stands for all strings in a table of automata") {
    DfaTable dfas;
    const SharedDfa word = dfas.Share(DfaOf("[a-z]+"));
    CHECK(*dfas.Intersect(nullptr, nullptr) == nullptr);
    CHECK(*dfas.Intersect(nullptr, word) == word);
    CHECK(*dfas.Intersect(word, nullptr) == word);
    const SharedDfa others = *dfas.Subtract(nullptr, word);
    CHECK(others->Accepts(""));
    CHECK(others->Accepts("\u00e9"));
    CHECK_FALSE(others->Accepts("word"));
    CHECK_FALSE(others->Accepts("\xff"));
  }
}

}  // namespace
}  // namespace specd::grammar
