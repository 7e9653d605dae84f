#include "speculative/grammar/automata/byte_dfa.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"
#include "tests/speculative/grammar/dfa_texts.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

constexpr GridSizes kTrials = {.full = 1500, .sanitized = 150};

// Some states are out of reach, some accept nothing, and neighbouring edges may have one target.
ByteDfa RandomDfa(size_t num_states, std::mt19937* random) {
  ByteDfa dfa;
  dfa.states.resize(num_states);
  for (ByteDfa::State& state : dfa.states) {
    state.accepting = (*random)() % 3 == 0;
    for (uint8_t byte = 'a'; byte <= 'c'; ++byte) {
      if ((*random)() % 4 == 0) continue;
      state.edges.push_back({byte, byte, static_cast<uint32_t>((*random)() % num_states)});
    }
  }
  return dfa;
}

// Edges lead to later states and to the state itself, so there is no other circle.
ByteDfa RandomForwardDfa(size_t num_states, std::mt19937* random) {
  ByteDfa dfa = RandomDfa(num_states, random);
  for (size_t state = 0; state < num_states; ++state) {
    for (ByteDfa::Edge& edge : dfa.states[state].edges) {
      edge.target = static_cast<uint32_t>(state + (*random)() % (num_states - state));
    }
  }
  return dfa;
}

ByteDfa RandomDfa(std::mt19937* random) { return RandomDfa((*random)() % 7, random); }

// The languages of the states that texts lead to, except the empty one: an automaton needs one
// state for each (Myhill and Nerode). Seven states differ within texts of six letters.
size_t NumResiduals(const ByteDfa& dfa) {
  std::set<uint32_t> states;
  for (const std::string& text : Texts()) {
    uint32_t state = dfa.IsEmpty() ? ByteDfa::kDead : 0;
    for (const char byte : text) state = dfa.Step(state, static_cast<uint8_t>(byte));
    if (state != ByteDfa::kDead) states.insert(state);
  }
  std::set<std::vector<bool>> residuals;
  for (const uint32_t state : states) residuals.insert(Language(dfa, state));
  residuals.erase(std::vector<bool>(Texts().size(), false));
  return residuals.size();
}

// The same language with the states in another order, and every state twice.
ByteDfa Disguise(const ByteDfa& dfa, std::mt19937* random) {
  const size_t num_states = dfa.states.size();
  ByteDfa result;
  if (num_states == 0) return result;
  std::vector<uint32_t> place(2 * num_states);
  std::iota(place.begin(), place.end(), 0);
  std::shuffle(place.begin() + 1, place.end(), *random);
  result.states.resize(2 * num_states);
  for (size_t i = 0; i < place.size(); ++i) {
    const ByteDfa::State& state = dfa.states[i % num_states];
    ByteDfa::State& made = result.states[place[i]];
    made.accepting = state.accepting;
    for (ByteDfa::Edge edge : state.edges) {
      edge.target = place[edge.target + ((*random)() % 2) * num_states];
      made.edges.push_back(edge);
    }
  }
  return result;
}

bool AreSame(const ByteDfa& a, const ByteDfa& b) {
  return std::equal(a.states.begin(), a.states.end(), b.states.begin(), b.states.end(),
                    [](const ByteDfa::State& left, const ByteDfa::State& right) {
                      return left.accepting == right.accepting && left.edges == right.edges;
                    });
}

// The texts of n, 2n, 3n ... letters a.
ByteDfa Cycle(uint32_t n) {
  ByteDfa dfa;
  for (uint32_t i = 0; i < n; ++i) {
    dfa.states.push_back({.edges = {{'a', 'a', (i + 1) % n}}, .accepting = i == 0});
  }
  return dfa;
}

std::string Encode(uint32_t value, int num_tails) {
  constexpr uint32_t kLeads[] = {0x00, 0xC0, 0xE0, 0xF0};
  std::string text;
  text.push_back(static_cast<char>(kLeads[num_tails] | value >> 6 * num_tails));
  for (int i = num_tails - 1; i >= 0; --i) {
    text.push_back(static_cast<char>(0x80 | (value >> 6 * i & 0x3F)));
  }
  return text;
}

TEST_SUITE("unit") {
  TEST_CASE("operations on random automata follow their definitions") {
    std::mt19937 random(1);
    for (int trial = 0; trial < GridSize(kTrials); ++trial) {
      const ByteDfa a = RandomDfa(&random);
      const ByteDfa b = RandomDfa(&random);
      const std::vector<bool> in_a = Language(a);
      const std::vector<bool> in_b = Language(b);
      const auto both = Intersect(a, b);
      const auto either = Unite(a, b);
      const auto only_a = Subtract(a, b);
      REQUIRE(both.ok());
      REQUIRE(either.ok());
      REQUIRE(only_a.ok());
      bool is_right = true;
      for (size_t i = 0; i < Texts().size(); ++i) {
        is_right = is_right && a.Accepts(Texts()[i]) == in_a[i];
        is_right = is_right && both->Accepts(Texts()[i]) == (in_a[i] && in_b[i]);
        is_right = is_right && either->Accepts(Texts()[i]) == (in_a[i] || in_b[i]);
        is_right = is_right && only_a->Accepts(Texts()[i]) == (in_a[i] && !in_b[i]);
      }
      CHECK_MESSAGE(is_right, "trial ", trial);
      for (const ByteDfa* result : {&*both, &*either, &*only_a}) {
        CheckCanonical(*result);
        CHECK(AreSame(*result, Minimize(*result)));
      }
    }
  }

  TEST_CASE("Minimize leaves one state for each language that is left after a text") {
    std::mt19937 random(2);
    for (int trial = 0; trial < GridSize(kTrials); ++trial) {
      const ByteDfa dfa = RandomDfa(&random);
      const ByteDfa smallest = Minimize(dfa);
      CHECK(Language(smallest) == Language(dfa));
      CHECK_MESSAGE(smallest.states.size() == NumResiduals(dfa), "trial ", trial);
      CheckCanonical(smallest);
      CHECK(AreSame(smallest, Minimize(Disguise(dfa, &random))));
    }
  }

  TEST_CASE("Minimize of an automaton whose only circles are edges to the same state") {
    std::mt19937 random(4);
    for (int trial = 0; trial < GridSize(kTrials); ++trial) {
      const ByteDfa dfa = RandomForwardDfa(1 + random() % 7, &random);
      const ByteDfa smallest = Minimize(dfa);
      CHECK(Language(smallest) == Language(dfa));
      CHECK_MESSAGE(smallest.states.size() == NumResiduals(dfa), "trial ", trial);
      CheckCanonical(smallest);
      // With every state twice there are other circles, and another algorithm finds the same.
      CHECK(AreSame(smallest, Minimize(Disguise(dfa, &random))));
    }
  }

  TEST_CASE("AreEqual and Overlap compare languages") {
    std::mt19937 random(3);
    int num_equal = 0;
    int num_apart = 0;
    for (int trial = 0; trial < GridSize(kTrials); ++trial) {
      // Two and three states: the shortest text that shows a difference has at most six letters.
      const ByteDfa a = RandomDfa(2, &random);
      const ByteDfa b = RandomDfa(3, &random);
      const std::vector<bool> in_a = Language(a);
      const std::vector<bool> in_b = Language(b);
      bool overlap = false;
      for (size_t i = 0; i < in_a.size(); ++i) overlap = overlap || (in_a[i] && in_b[i]);
      CHECK(AreEqual(a, b) == (in_a == in_b));
      CHECK(Overlap(a, b) == overlap);
      CHECK(AreEqual(b, Disguise(b, &random)));
      num_equal += in_a == in_b ? 1 : 0;
      num_apart += overlap ? 0 : 1;
    }
    CHECK(num_equal > 0);
    CHECK(num_apart > 0);
  }

  TEST_CASE("an automaton without states accepts nothing") {
    const ByteDfa none;
    ByteDfa empty_text;
    empty_text.states.push_back({.edges = {}, .accepting = true});
    CHECK_FALSE(none.Accepts(""));
    CHECK(empty_text.Accepts(""));
    CHECK_FALSE(empty_text.Accepts("a"));
    CHECK(none.Step(ByteDfa::kDead, 'a') == ByteDfa::kDead);
    CHECK(Minimize(none).IsEmpty());
    CHECK(AreSame(*Unite(none, empty_text), empty_text));
    CHECK(Subtract(empty_text, empty_text)->IsEmpty());
    CHECK(AreEqual(none, *Intersect(none, empty_text)));
    CHECK_FALSE(Overlap(none, empty_text));
  }

  TEST_CASE("bytes 0 and 255 are bytes like any other") {
    ByteDfa every;
    every.states.push_back({.edges = {{0, 255, 1}}, .accepting = false});
    every.states.push_back({.edges = {}, .accepting = true});
    ByteDfa middle = every;
    middle.states[0].edges = {{1, 127, 1}, {128, 254, 1}};
    const auto ends = Subtract(every, middle);
    REQUIRE(ends.ok());
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text(1, static_cast<char>(byte));
      CHECK(every.Accepts(text));
      CHECK(middle.Accepts(text) == (byte != 0 && byte != 255));
      CHECK(ends->Accepts(text) == (byte == 0 || byte == 255));
    }
    CHECK(Minimize(middle).states[0].edges == List<ByteDfa::Edge>{{1, 254, 1}});
  }

  TEST_CASE("characters are accepted as UTF-8, and nothing else is") {
    GrammarRules rules;
    const auto any = Determinize(rules, rules.Chars(CharSet::All()));
    CharSet edges;
    const std::vector<uint32_t> lasts = {0x7F, 0x7FF, 0xFFFF, kCharMax};
    for (const uint32_t last : lasts) edges.Add(last - 1, last);
    const auto some = Determinize(rules, rules.Chars(edges));
    REQUIRE(any.ok());
    REQUIRE(some.ok());
    // Unicode 15, table 3-7: each value with each number of bytes that has room for it.
    size_t num_wrong = 0;
    for (uint32_t value = 0; value <= 0x1FFFFF; ++value) {
      for (int num_tails = 0; num_tails < 4; ++num_tails) {
        constexpr uint32_t kRoom[] = {0x7F, 0x7FF, 0xFFFF, 0x1FFFFF};
        if (value > kRoom[num_tails]) continue;
        const bool is_shortest = num_tails == 0 || value > kRoom[num_tails - 1];
        const bool is_character =
            is_shortest && value <= kCharMax && (value < 0xD800 || value > 0xDFFF);
        const std::string text = Encode(value, num_tails);
        const bool is_edge = edges.Has(value) && is_character;
        num_wrong += any->Accepts(text) == is_character ? 0 : 1;
        num_wrong += some->Accepts(text) == is_edge ? 0 : 1;
      }
    }
    CHECK(num_wrong == 0);
    for (const char* text :
         {"", "\x80", "\xC2", "\xE4\xBD", "\xF8\x88\x80\x80\x80", "ab", "\xFF"}) {
      CHECK_FALSE(any->Accepts(text));
    }
    CHECK_FALSE(Overlap(*some, *Subtract(*any, *some)));
    CHECK(AreEqual(*any, *Unite(*some, *Subtract(*any, *some))));
  }

  TEST_CASE("an expression that calls a rule is refused") {
    GrammarRules rules;
    const RuleId rule = rules.AddRule("item");
    rules.Define(rule, rules.Literal("x"));
    const auto dfa = Determinize(rules, rules.Sequence({rules.Literal("a"), rules.Call(rule)}));
    CHECK(dfa.status().code() == absl::StatusCode::kInvalidArgument);
  }

  TEST_CASE("a pattern and a length make a bounded pattern") {
    GrammarRules rules;
    const ExprId word = rules.Plus(rules.Chars(CharSet::Range('a', 'c')));
    const ExprId length = rules.Repeat(rules.Chars(CharSet::All()), 2, 4);
    const auto both = Intersect(*Determinize(rules, word), *Determinize(rules, length));
    REQUIRE(both.ok());
    for (const std::string& text : Texts()) {
      CHECK(both->Accepts(text) == (text.size() >= 2 && text.size() <= 4));
    }
    CHECK(both->states.size() == 5);
  }

  TEST_CASE("a product past the limit is refused, and a large one is exact") {
    // Numbers without a common factor: the product needs a state for each pair.
    const auto large = Intersect(Cycle(251), Cycle(257));
    REQUIRE(large.ok());
    CHECK(large->states.size() == 251 * 257);
    CHECK(AreEqual(*large, Cycle(251 * 257)));
    for (const auto& result : {Intersect(Cycle(257), Cycle(263)), Unite(Cycle(257), Cycle(263)),
                               Subtract(Cycle(257), Cycle(263))}) {
      CHECK(result.status().code() == absl::StatusCode::kResourceExhausted);
    }
    CHECK(Intersect(Cycle(521), Cycle(523)).status().code() ==
          absl::StatusCode::kResourceExhausted);
    CHECK(Overlap(Cycle(257), Cycle(263)));
  }

  TEST_CASE("the limit counts the states of the result, not those on the way") {
    GrammarRules rules;
    const ExprId safe = rules.Chars(CharSet::All().Without(CharSet::One('"')));
    const auto dfa = Determinize(rules, rules.Repeat(safe, 0, 8000));
    REQUIRE(dfa.ok());
    // Seven ways to be inside a character: 1, 2 or 3 free tails, or one after E0, ED, F0 or F4.
    CHECK(dfa->states.size() == 8001 + 7 * 8000);
  }

  TEST_CASE("an automaton with too many transitions is refused") {
    // Each state has one edge over all bytes, and the first has an edge of its own for each byte.
    ByteDfa dfa;
    dfa.states.resize(kDfaStatesMax);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      dfa.states[0].edges.push_back(
          {static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), 1 + byte % 2});
    }
    for (uint32_t i = 1; i + 1 < kDfaStatesMax; ++i) dfa.states[i].edges = {{0, 255, i + 1}};
    dfa.states.back().accepting = true;
    CHECK(CountTransitions(dfa) == 256 * (kDfaStatesMax - 1));
    CHECK(Unite(dfa, {}).status().code() == absl::StatusCode::kResourceExhausted);
  }

  TEST_CASE("texts are taken out of an automaton: those, and no others") {
    GrammarRules rules;
    const ExprId letters = rules.Bytes(ByteSet::Range('a', 'c'));
    const auto all = Determinize(rules, rules.Repeat(letters, 0, 4));
    REQUIRE(all.ok());
    // One text begins another, one is not in the automaton, one is empty.
    for (const std::vector<std::string>& texts :
         {std::vector<std::string>{"ab", "abc", "abca", "c", "xa", "aaaaa"}, {""}, {}}) {
      const ByteDfa rest = SubtractTexts(*all, texts);
      std::vector<std::string> open = {""};
      for (size_t i = 0; i < open.size(); ++i) {
        const bool is_out = std::find(texts.begin(), texts.end(), open[i]) != texts.end();
        CAPTURE(open[i]);
        CHECK(rest.Accepts(open[i]) == (all->Accepts(open[i]) && !is_out));
        if (open[i].size() == 5) continue;
        for (const char letter : {'a', 'b', 'c', 'x'}) open.push_back(open[i] + letter);
      }
    }
  }
}

}  // namespace
}  // namespace specd::grammar
