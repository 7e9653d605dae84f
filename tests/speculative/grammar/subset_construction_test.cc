#include "speculative/grammar/rules/subset_construction.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <utility>

#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "tests/speculative/grammar/dfa_texts.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

constexpr GridSizes kTrials = {.full = 1500, .sanitized = 150};

ByteNfa RandomNfa(std::mt19937* random) {
  const auto num_nodes = static_cast<uint32_t>(2 + (*random)() % 7);
  ByteNfa nfa;
  nfa.nodes.resize(num_nodes);
  nfa.final = num_nodes - 1;
  for (uint32_t node = 0; node + 1 < num_nodes; ++node) {
    for (auto i = (*random)() % 3; i > 0; --i) {
      const auto first = static_cast<uint8_t>('a' + (*random)() % 3);
      const auto last =
          static_cast<uint8_t>(first + (*random)() % static_cast<uint32_t>('d' - first));
      nfa.nodes[node].edges.push_back(
          {first, last, static_cast<uint32_t>((*random)() % num_nodes)});
    }
    for (auto i = (*random)() % 3; i > 0; --i) {
      nfa.nodes[node].empties.push_back(static_cast<uint32_t>((*random)() % num_nodes));
    }
  }
  return nfa;
}

void FollowEmpties(const ByteNfa& nfa, std::set<uint32_t>* nodes) {
  for (size_t before = 0; before != nodes->size();) {
    before = nodes->size();
    for (const uint32_t node : std::set<uint32_t>(*nodes)) {
      nodes->insert(nfa.nodes[node].empties.begin(), nfa.nodes[node].empties.end());
    }
  }
}

bool NfaAccepts(const ByteNfa& nfa, std::string_view text) {
  std::set<uint32_t> nodes = {nfa.start};
  FollowEmpties(nfa, &nodes);
  for (const char byte : text) {
    std::set<uint32_t> next;
    for (const uint32_t node : nodes) {
      for (const ByteNfa::Edge& edge : nfa.nodes[node].edges) {
        if (edge.first <= byte && byte <= edge.last) next.insert(edge.target);
      }
    }
    nodes = std::move(next);
    FollowEmpties(nfa, &nodes);
  }
  return nodes.count(nfa.final) != 0;
}

TEST_SUITE("unit") {
  TEST_CASE("the subset construction keeps the language of random automata") {
    std::mt19937 random(4);
    for (int trial = 0; trial < GridSize(kTrials); ++trial) {
      const ByteNfa nfa = RandomNfa(&random);
      const auto dfa = SubsetConstruction(nfa).Run();
      REQUIRE(dfa.ok());
      bool is_right = true;
      for (const std::string& text : Texts()) {
        is_right = is_right && dfa->Accepts(text) == NfaAccepts(nfa, text);
      }
      CHECK_MESSAGE(is_right, "trial ", trial);
      CheckCanonical(*dfa);
    }
  }

  TEST_CASE("a subset construction past the limit is refused") {
    GrammarRules rules;
    const ExprId any = rules.Bytes(ByteSet::Range('a', 'b'));
    // An a that many letters before the end: the automaton remembers each of the last letters.
    const auto last_letters = [&](uint32_t num_letters) {
      const ExprId expr = rules.Sequence(
          {rules.Star(any), rules.Literal("a"), rules.Repeat(any, num_letters, num_letters)});
      return Determinize(rules, expr);
    };
    const auto small = last_letters(9);
    REQUIRE(small.ok());
    CHECK(small->states.size() == 1024);
    CHECK(last_letters(16).status().code() == absl::StatusCode::kResourceExhausted);
    // Few states with many nodes each are too much work.
    const ExprId nested = rules.Repeat(
        rules.Sequence({rules.Optional(any), rules.Optional(rules.Literal("c"))}), 30000, 30000);
    CHECK(Determinize(rules, nested).status().code() == absl::StatusCode::kResourceExhausted);
    const ExprId long_text = rules.Repeat(any, kDfaStatesMax, kDfaStatesMax);
    CHECK(Determinize(rules, long_text).status().code() == absl::StatusCode::kResourceExhausted);
    const auto longest =
        Determinize(rules, rules.Repeat(any, kDfaStatesMax - 1, kDfaStatesMax - 1));
    REQUIRE(longest.ok());
    CHECK(longest->states.size() == kDfaStatesMax);
  }
}

}  // namespace
}  // namespace specd::grammar
