// Equal expressions have one id, and expressions that differ in one part have two.
#include "speculative/grammar/rules/grammar_rules.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace specd::grammar {
namespace {

ByteDfa Word(uint8_t byte, bool may_be_empty) {
  return {.states = {{.edges = {{byte, byte, 1}}, .accepting = may_be_empty},
                     {.edges = {}, .accepting = true}}};
}

// A list of expressions, no two of them equal.
std::vector<ExprId> MakeAll(GrammarRules* rules) {
  const ExprId a = rules->Literal("a");
  const ExprId b = rules->Literal("b");
  const Members::Key key = {.text = "k", .value = a};
  Members members = {.keys = {key}, .separator = b, .other = rules->Never()};
  std::vector<ExprId> all = {a,
                             b,
                             rules->Literal("ab"),
                             rules->Bytes(ByteSet::One('a')),
                             rules->Bytes(ByteSet::Range('a', 'b')),
                             rules->Chars(CharSet::One('a')),
                             rules->Chars(CharSet::Range('a', 'b')),
                             rules->Sequence({a, b}),
                             rules->Sequence({b, a}),
                             rules->AnyOf({a, b}),
                             rules->Repeat(a, 0, 1),
                             rules->Repeat(a, 0, 2),
                             rules->Repeat(a, 1, 2),
                             rules->Repeat(b, 0, 1),
                             rules->Call(0),
                             rules->Call(1),
                             rules->Automaton(Word('a', false)),
                             rules->Automaton(Word('a', true)),
                             rules->Automaton(Word('b', true)),
                             rules->MembersOf(members)};
  members.keys[0].is_required = true;
  all.push_back(rules->MembersOf(members));
  members.max = 3;
  all.push_back(rules->MembersOf(members));
  members.min = 0;
  all.push_back(rules->MembersOf(members));
  members.other = a;
  all.push_back(rules->MembersOf(members));
  members.max = kUnbounded;
  members.has_need = true;
  members.keys[0].needed_value = b;
  members.needed_other = rules->Never();
  all.push_back(rules->MembersOf(members));
  return all;
}

TEST_SUITE("unit") {
  TEST_CASE("equal expressions have one id, and others have their own") {
    GrammarRules rules;
    rules.AddRule("first");
    rules.AddRule("second");
    const std::vector<ExprId> all = MakeAll(&rules);
    CHECK(std::set<ExprId>(all.begin(), all.end()).size() == all.size());
    const size_t num_exprs = rules.num_exprs();
    CHECK(MakeAll(&rules) == all);
    CHECK(rules.num_exprs() == num_exprs);
    CHECK(rules.literal(rules.expr(all[2])) == "ab");
    CHECK(rules.automaton(rules.expr(all[17])) == Word('a', true));
    CHECK(rules.members(rules.expr(all[20])).keys[0].is_required);
  }
}

}  // namespace
}  // namespace specd::grammar
