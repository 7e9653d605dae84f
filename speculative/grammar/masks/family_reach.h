// FamilyReach finds up to how many characters all texts of a family may follow a state of a
// grammar.
//
// It goes character by character: from the states after all texts of k characters to those after
// k + 1. Where no new state comes, texts of any length may follow. Where a grammar counts
// characters, the states of each number are others, and the look ends at a number. One thread at a
// time.
//
//   FamilyReach reach(&family, &automaton, state);
//   while (reach.StepOn() == FamilyReach::Progress::kMore) {}
//   // texts of up to reach.count() characters may follow
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/masks/vocabulary_slices.h"
#include "speculative/grammar/states/lazy_automaton.h"

namespace specd::grammar {

class FamilyReach {
 public:
  enum class Progress { kMore, kDone, kLimit };

  // Both outlive the look. REQUIRES: the state is alive.
  FamilyReach(const TokenFamily* family, LazyAutomaton* automaton, StateId state);

  // Takes the steps of one pair of states, and spends their units. kLimit: limit() names it. Steps
  // that were taken before are taken again in no time.
  Progress StepOn();

  // All texts of up to so many characters may follow; kUnbounded: of any number.
  uint32_t count() const { return count_; }
  // No longer text of the family may follow. REQUIRES: StepOn has returned kDone.
  bool is_end() const { return is_end_; }
  StateId limit() const { return limit_; }

 private:
  // A state of the automaton of one character, and a state of the grammar after the same text.
  struct Pair {
    uint32_t in_character = 0;
    StateId in_grammar = 0;
  };

  const ByteDfa& OneCharacter() const { return count_ == 0 ? family_.first : family_.other; }
  // Begins with the characters behind count_ others. False: the look has ended.
  bool BeginCharacter();
  void Visit(uint32_t in_character, StateId in_grammar);
  // False: no text of more characters is sure to follow.
  bool StepPair(Pair pair);
  void AddNext(StateId state);

  const TokenFamily& family_;
  LazyAutomaton& automaton_;
  uint32_t count_ = 0;
  bool is_end_ = false;
  StateId limit_ = LazyAutomaton::kDead;
  std::vector<StateId> states_;  // after count_ characters
  std::vector<StateId> next_;    // after one more
  std::vector<StateId> met_;     // those of all counts that go on with `other`
  std::vector<Pair> pairs_;      // of the present character
  IdTable seen_;                 // places in pairs_
  size_t num_done_ = 0;          // of pairs_
};

}  // namespace specd::grammar
