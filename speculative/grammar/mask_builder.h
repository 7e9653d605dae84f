// MaskBuilder finds the tokens that may follow a state of a grammar.
//
// It walks the vocabulary along the automaton. Most tokens are not walked: a slice of the
// vocabulary whose whole language may follow the state is taken as it is (vocabulary_slices.h).
// Immutable; safe from any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "speculative/grammar/lazy_automaton.h"
#include "speculative/grammar/vocabulary_slices.h"

namespace specd::grammar {

class MaskBuilder {
 public:
  explicit MaskBuilder(const TokenTrie& trie)
      : vocab_size_(trie.vocab_size()),
        slices_(MakeVocabularySlices(trie)),
        covers_(MakeSliceCovers(slices_)) {}

  // The row of `state`, without stop ids. REQUIRES: the state is alive.
  std::vector<uint32_t> Build(LazyAutomaton* automaton, StateId state) const;

 private:
  enum class Answer { kNo, kYes, kUnknown };

  // Whether every text of the language may follow the state; unknown after `pairs_max` pairs of
  // states.
  static Answer Contains(const ByteDfa& language, LazyAutomaton* automaton, StateId state,
                         size_t pairs_max);
  static void Walk(const TokenTrie& trie, LazyAutomaton* automaton, StateId state,
                   std::vector<uint32_t>* words);

  const int32_t vocab_size_;
  const std::vector<VocabularySlice> slices_;
  const std::vector<SliceCover> covers_;
};

}  // namespace specd::grammar
