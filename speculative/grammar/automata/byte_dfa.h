// ByteDfa is a deterministic automaton over bytes, for the regular parts of a grammar.
//
// Plain data. Thread safety: as an int. dfa_operations.h combines automata.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "speculative/grammar/base/counted.h"

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

// Appends an edge, or widens the last one. REQUIRES: the edges end before `edge`.
void AppendEdge(const ByteDfa::Edge& edge, List<ByteDfa::Edge>* edges);

}  // namespace specd::grammar
