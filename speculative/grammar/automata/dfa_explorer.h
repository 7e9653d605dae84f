// ExploreDfa makes a ByteDfa from a rule in code: a start state, a step, and what accepts.
//
// Use it where a language is easier to count than to spell: numbers between bounds, texts of a
// length, multiples. A state is any value with operator<. `ranges` are bytes that the step treats
// alike; a byte in none of them is not in the language.
//
//   ExploreDfa(0u, {{'a', 'a'}},
//              [](unsigned n, uint8_t) { return n < 3 ? std::optional(n + 1) : std::nullopt; },
//              [](unsigned n) { return n >= 2; });        // aa, aaa
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;
};

template <typename State, typename Step, typename IsAccepting>
absl::StatusOr<ByteDfa> ExploreDfa(const State& start, std::span<const ByteRange> ranges,
                                   const Step& step, const IsAccepting& is_accepting) {
  std::map<State, uint32_t> ids = {{start, 0}};
  List<State> open = {start};
  ByteDfa dfa;
  for (size_t id = 0; id < open.size(); ++id) {
    const State state = open[id];
    ByteDfa::State& made = dfa.states.emplace_back();
    made.accepting = is_accepting(state);
    for (const ByteRange& range : ranges) {
      const std::optional<State> next = step(state, range.first);
      if (!next.has_value()) continue;
      const auto [entry, is_new] = ids.try_emplace(*next, static_cast<uint32_t>(open.size()));
      if (is_new) open.push_back(*next);
      if (!made.edges.empty() && made.edges.back().target == entry->second &&
          made.edges.back().last + 1 == range.first) {
        made.edges.back().last = range.last;
      } else {
        made.edges.push_back({range.first, range.last, entry->second});
      }
    }
    if (open.size() > kDfaStatesMax) {
      return absl::ResourceExhaustedError("the automaton grows past its limit");
    }
  }
  return Minimize(dfa);
}

}  // namespace specd::grammar
