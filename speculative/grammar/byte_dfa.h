// ByteDfa is a deterministic automaton over bytes, for the regular parts of a grammar.
//
// A front end uses it where a language is made from others by operations that expressions lack:
// intersection (a pattern and a length), complement (a key that is none of the declared ones). Dfa
// functions build new automata. Every result except that of SubtractTexts is minimal and has no
// state from which no text can be completed. Plain data. Thread safety: as an int.
//
//   auto pattern = Determinize(rules, expr);                  // Status if it calls rules or grows
//   auto both = Intersect(*pattern, *length);
//   ExprId body = rules.Automaton(*std::move(both));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "speculative/grammar/counted.h"

namespace specd::grammar {

struct ByteDfa {
  // Bytes first..last lead to target. The edges of a state are sorted and disjoint.
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;

    friend bool operator==(const Edge&, const Edge&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Edge& edge) {
      return H::combine(std::move(state), edge.first, edge.last, edge.target);
    }
  };
  struct State {
    List<Edge> edges;
    bool accepting = false;

    friend bool operator==(const State&, const State&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const State& of) {
      return H::combine(std::move(state), of.edges, of.accepting);
    }
  };

  // State 0 is the start. An empty list accepts no text.
  List<State> states;

  bool IsEmpty() const { return states.empty(); }
  bool Accepts(std::string_view text) const;
  // The state after `text` from `state`, or kDead.
  static constexpr uint32_t kDead = ~uint32_t{0};
  uint32_t Step(uint32_t state, uint8_t byte) const;

  // The same states in the same order.
  friend bool operator==(const ByteDfa&, const ByteDfa&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const ByteDfa& dfa) {
    return H::combine(std::move(state), dfa.states);
  }
};

// An operation whose result would have more states fails with RESOURCE_EXHAUSTED, and so does one
// that meets far more before it can merge them (kDfaGrowthMax).
inline constexpr size_t kDfaStatesMax = 65536;

class GrammarRules;

// The language of an expression that calls no rule.
absl::StatusOr<ByteDfa> Determinize(const GrammarRules& rules, uint32_t expr);

absl::StatusOr<ByteDfa> Intersect(const ByteDfa& a, const ByteDfa& b);
absl::StatusOr<ByteDfa> Unite(const ByteDfa& a, const ByteDfa& b);
// The texts of `a` that are not texts of `b`.
absl::StatusOr<ByteDfa> Subtract(const ByteDfa& a, const ByteDfa& b);
// The texts of `a` that are none of `texts`. Quick and not minimal: a tree of the texts' bytes
// stands before the states of `a`. States may lead to no text, but empty is empty.
ByteDfa SubtractTexts(const ByteDfa& a, std::span<const std::string> texts);
// The smallest automaton of the same language: states with the same language become one.
ByteDfa Minimize(const ByteDfa& dfa);

bool AreEqual(const ByteDfa& a, const ByteDfa& b);
// True if a text is in both, or if two large automata have too many pairs of states to tell.
bool Overlap(const ByteDfa& a, const ByteDfa& b);

}  // namespace specd::grammar
