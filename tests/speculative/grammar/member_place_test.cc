#include "speculative/grammar/states/member_place.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/states/lazy_automaton.h"
#include "tests/speculative/grammar/follower.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

// Members over a, b and c: required and optional ones, others, bounds; values that hold members.
class RandomMembers {
 public:
  RandomMembers(uint64_t seed, bool any_order) : random_(seed), any_order_(any_order) {
    const RuleId root = rules_.AddRule("root");
    rules_.Define(root, rules_.AnyOf({Object(root), rules_.Literal("c")}));
    rules_.SetRoot(root);
  }
  const GrammarRules& rules() const { return rules_; }

 private:
  ExprId Object(RuleId root) {
    if (any_order_ && random_() % 3 == 0) return Items();
    Members members;
    members.any_order = any_order_;
    uint32_t num_required = 0;
    const size_t num_keys = random_() % 4;
    const std::vector<std::string> names = random_() % 2 == 0
                                               ? std::vector<std::string>{"a", "b", "c"}
                                               : std::vector<std::string>{"ab", "b", "aa"};
    for (size_t i = 0; i < num_keys; ++i) {
      const bool is_required = random_() % 3 == 0;
      num_required += is_required ? 1 : 0;
      members.keys.push_back({names[i], Value(root), is_required});
    }
    members.separator = random_() % 2 == 0 ? rules_.Literal("b") : rules_.Plus(rules_.Literal("a"));
    if (random_() % 8 == 0) members.separator = rules_.Never();  // one member alone
    if (random_() % 2 == 0) members.other = rules_.Sequence({rules_.Literal("c"), Value(root)});
    const bool has_others = members.other != rules_.Never();
    members.min = 1 + static_cast<uint32_t>(random_() % (has_others ? num_required + 1 : 3));
    if (random_() % 3 == 0) {
      members.has_need = true;
      for (Members::Key& key : members.keys) {
        if (random_() % 2 == 0) key.needed_value = random_() % 2 == 0 ? key.value : Value(root);
      }
      if (has_others && random_() % 2 == 0) members.needed_other = rules_.Literal("cc");
    } else if (random_() % 2 == 0)
      members.max = members.min + static_cast<uint32_t>(random_() % 2);
    return rules_.MembersOf(std::move(members));
  }
  // All items are different. An item may begin another one.
  ExprId Items() {
    Members members = {.any_order = true, .has_values = false};
    for (const char* text : {"a", "ab", "aba", "b", "bb", "c"}) {
      if (random_() % 2 == 0) members.keys.push_back({text, rules_.Empty(), random_() % 5 == 0});
    }
    members.separator = random_() % 2 == 0 ? rules_.Literal("c") : rules_.Plus(rules_.Literal("b"));
    members.min = 1 + static_cast<uint32_t>(random_() % 3);
    if (random_() % 2 == 0) members.max = members.min + static_cast<uint32_t>(random_() % 3);
    return rules_.MembersOf(std::move(members));
  }
  ExprId Value(RuleId root) {
    switch (random_() % 5) {
      case 0:
        return rules_.Call(root);
      case 1:
        return rules_.Repeat(rules_.AnyOf({rules_.Literal("a"), rules_.Literal("ab")}), 1, 5);
      case 2:
        return rules_.Bytes(ByteSet::Range('a', 'c'));
      case 3:
        return random_() % 3 == 0 ? rules_.Never() : rules_.Literal("b");
      default:
        return rules_.Literal("a");
    }
  }

  std::mt19937_64 random_;
  const bool any_order_;
  GrammarRules rules_;
};

TEST_SUITE("unit") {
  TEST_CASE("random members: every text and every prefix, against the reference") {
    for (int32_t seed = 0; seed < GridSize({.full = 400, .sanitized = 60}); ++seed) {
      CAPTURE(seed);
      CheckAgainstReference(RandomMembers(static_cast<uint64_t>(seed), false).rules(), "abc", 7);
    }
  }

  TEST_CASE("random members in any order: every text and every prefix, against the reference") {
    for (int32_t seed = 0; seed < GridSize({.full = 800, .sanitized = 80}); ++seed) {
      CAPTURE(seed);
      CheckAgainstReference(RandomMembers(static_cast<uint64_t>(seed), true).rules(), "abc", 7);
    }
  }

  TEST_CASE("keys in any order: each order of each set of them, by counting") {
    // Of 4 keys the ordered selections with both required ones are 2! + 2 * 3! + 4! = 38.
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    Members members = {.any_order = true, .separator = rules.Literal(",")};
    for (const char* key : {"d", "b", "a", "c"}) {
      members.keys.push_back({key, rules.Literal(":"), *key == 'd' || *key == 'b'});
    }
    rules.Define(root, rules.MembersOf(std::move(members)));
    rules.SetRoot(root);
    Follower follower(rules);
    int num_accepted = 0;
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].size() > 3 * 5) continue;
      for (const char key : {'a', 'b', 'c', 'd'}) {
        const std::string text = texts[i] + (texts[i].empty() ? "" : ",") + key + ":";
        if (follower.Accepts(text)) ++num_accepted;
        texts.push_back(text);
      }
    }
    CHECK(num_accepted == 38);
    CHECK(follower.Accepts("c:,d:,b:"));
    CHECK(!follower.Accepts("c:,d:,c:,b:"));
    CHECK(!follower.Accepts("d:,c:"));
  }

  TEST_CASE("sets of keys go along to another automaton") {
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    Members members = {.any_order = true, .has_values = false, .separator = rules.Literal(",")};
    for (int i = 0; i < 200; ++i) members.keys.push_back({std::to_string(i), rules.Empty()});
    rules.Define(root, rules.MembersOf(std::move(members)));
    rules.SetRoot(root);
    const absl::StatusOr<Network> network = Network::Build(rules);
    LazyAutomaton from(&*network);
    LazyAutomaton to(&*network);
    to.StepText(to.start(), "3,2,199,");  // its sets have numbers of their own
    std::vector<StateId> states = {from.StepText(from.start(), "1,"),
                                   from.StepText(from.start(), "190,12,1,19")};
    states = to.Import(from, states);
    REQUIRE(states.size() == 2);
    CHECK(LazyAutomaton::IsAlive(to.StepText(states[0], "190,19")));
    CHECK(!LazyAutomaton::IsAlive(to.StepText(states[0], "1,")));
    CHECK(LazyAutomaton::IsAlive(to.StepText(states[1], ",191")));
    CHECK(to.IsAccepting(to.StepText(states[1], "9")));
    CHECK(!LazyAutomaton::IsAlive(to.StepText(states[1], "0")));
    CHECK(!LazyAutomaton::IsAlive(to.StepText(states[1], ",12,")));
    CHECK(to.IsAccepting(to.StepText(states[1], ",120,0")));
  }
}

}  // namespace
}  // namespace specd::grammar
