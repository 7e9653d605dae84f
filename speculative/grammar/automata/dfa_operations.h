// Operations that make an automaton of others: for what expressions lack.
//
// A front end needs them for intersection (a pattern and a length) and complement (a key that is
// none of the declared ones). Every result except that of SubtractTexts is minimal and has no state
// from which no text can be completed. Pure functions, for any thread. Errors are
// RESOURCE_EXHAUSTED: the result grows past a limit of dfa_minimizer.h.
//
//   auto pattern = Determinize(rules, expr);
//   auto both = Intersect(*pattern, *length);
//   ExprId body = rules.Automaton(*std::move(both));
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"

namespace specd::grammar {

absl::StatusOr<ByteDfa> Intersect(const ByteDfa& a, const ByteDfa& b);
absl::StatusOr<ByteDfa> Unite(const ByteDfa& a, const ByteDfa& b);
// The texts of `a` that are not texts of `b`.
absl::StatusOr<ByteDfa> Subtract(const ByteDfa& a, const ByteDfa& b);
// The texts of `a` that are none of `texts`. Quick and not minimal: a tree of the texts' bytes
// stands before the states of `a`. States may lead to no text, but empty is empty.
ByteDfa SubtractTexts(const ByteDfa& a, std::span<const std::string> texts);

bool AreEqual(const ByteDfa& a, const ByteDfa& b);
// True if a text is in both, or if two large automata have too many pairs of states to tell.
bool Overlap(const ByteDfa& a, const ByteDfa& b);

}  // namespace specd::grammar
