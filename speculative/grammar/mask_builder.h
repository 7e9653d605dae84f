// MaskBuilder finds the tokens that may follow a state of a grammar.
//
// It walks the vocabulary along the automaton. Most tokens are not walked: a slice of the
// vocabulary whose whole language may follow the state is taken as it is (vocabulary_slices.h).
// The work of one mask is bounded. A mask that meets a limit is not built at all: no row has a bit
// missing. Immutable; safe from any number of threads.
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

  // The units of work of one mask (budget.h; docs/GRAMMARS.md, "Limits of a sequence").
  static constexpr size_t kUnitsMax = size_t{1} << 20;

  // Writes the row of `state`, without stop ids, and returns kDead. If a limit is met, returns the
  // automaton's state that names it. REQUIRES: the state is alive.
  StateId Build(LazyAutomaton* automaton, StateId state, std::vector<uint32_t>* words) const;

 private:
  enum class Answer { kNo, kYes, kUnknown, kLimit };

  // Whether every text of the language may follow the state; unknown after `pairs_max` pairs of
  // states. With kLimit, `limit` is set.
  static Answer Contains(const ByteDfa& language, LazyAutomaton* automaton, StateId state,
                         size_t pairs_max, StateId* limit);
  // Returns kDead, or the limit that was met.
  static StateId Walk(const TokenTrie& trie, LazyAutomaton* automaton, StateId state,
                      std::vector<uint32_t>* words);

  const int32_t vocab_size_;
  const std::vector<VocabularySlice> slices_;
  const std::vector<SliceCover> covers_;
};

}  // namespace specd::grammar
