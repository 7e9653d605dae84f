// AcceptsFrom and Language follow the definition of a ByteDfa, for tests of its operations.
//
// Languages are compared on all short texts over three letters. CheckCanonical looks at the form of
// an automaton. Pure functions.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/automata/byte_dfa.h"

namespace specd::grammar {

inline constexpr size_t kDfaTextMax = 6;

// Every text over a, b and c of up to kDfaTextMax letters, the shortest first.
inline const std::vector<std::string>& Texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made = {""};
    for (size_t i = 0; made[i].size() < kDfaTextMax; ++i) {
      for (const char letter : {'a', 'b', 'c'}) made.push_back(made[i] + letter);
    }
    return made;
  }();
  return texts;
}

// The definition: follow the edges one by one.
inline bool AcceptsFrom(const ByteDfa& dfa, uint32_t state, std::string_view text) {
  if (dfa.states.empty()) return false;
  for (const char letter : text) {
    const auto byte = static_cast<uint8_t>(letter);
    bool is_found = false;
    for (const ByteDfa::Edge& edge : dfa.states[state].edges) {
      if (edge.first > byte || edge.last < byte) continue;
      state = edge.target;
      is_found = true;
      break;
    }
    if (!is_found) return false;
  }
  return dfa.states[state].accepting;
}

inline std::vector<bool> Language(const ByteDfa& dfa, uint32_t state = 0) {
  std::vector<bool> language;
  for (const std::string& text : Texts()) language.push_back(AcceptsFrom(dfa, state, text));
  return language;
}

// States and edges have the order and the form that Minimize gives them.
inline void CheckCanonical(const ByteDfa& dfa) {
  uint32_t highest = 0;
  for (const ByteDfa::State& state : dfa.states) {
    for (size_t i = 0; i < state.edges.size(); ++i) {
      const ByteDfa::Edge& edge = state.edges[i];
      CHECK(edge.first <= edge.last);
      CHECK(edge.target <= highest + 1);
      highest = std::max(highest, edge.target);
      if (i == 0) continue;
      CHECK(state.edges[i - 1].last < edge.first);
      const bool touches = state.edges[i - 1].last + 1 == edge.first;
      CHECK_FALSE((touches && state.edges[i - 1].target == edge.target));
    }
  }
  if (!dfa.IsEmpty()) CHECK(highest + 1 == dfa.states.size());
}

}  // namespace specd::grammar
