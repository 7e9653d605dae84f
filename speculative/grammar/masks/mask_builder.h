// MaskBuilder finds the tokens that may follow a state of a grammar, and MaskWork is one mask in
// the making.
//
// It walks the vocabulary along the automaton. Most tokens are not walked: a slice of the
// vocabulary whose whole language may follow the state is taken as it is (vocabulary_slices.h).
// The work of one mask is bounded. A mask that meets a limit is not built at all: no row has a bit
// missing. A mask may be built in several calls, so that others have their turn between them. A
// builder is immutable and safe from any number of threads; a work belongs to one at a time.
//
//   MaskWork work(&builder, &automaton, state);
//   while (!work.Advance(&slice)) slice = LetOthersGoFirst();
//   if (work.limit() == LazyAutomaton::kDead) Use(work.TakeWords());
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/masks/mask_words.h"
#include "speculative/grammar/masks/vocabulary_slices.h"
#include "speculative/grammar/states/lazy_automaton.h"

namespace specd::grammar {

class MaskBuilder {
 public:
  explicit MaskBuilder(const TokenTrie& trie)
      : vocab_size_(trie.vocab_size()),
        slices_(MakeVocabularySlices(trie)),
        covers_(MakeSliceCovers(slices_)) {}

  // The units of work of one mask (budget.h; docs/GRAMMARS.md, "Limits of a sequence").
  static constexpr uint64_t kUnitsMax = uint64_t{1} << 20;

 private:
  friend class MaskWork;

  const int32_t vocab_size_;
  const std::vector<VocabularySlice> slices_;
  const std::vector<SliceCover> covers_;
};

class MaskWork {
 public:
  // Both outlive the work. REQUIRES: the state is alive.
  MaskWork(const MaskBuilder* builder, LazyAutomaton* automaton, StateId state);

  // Goes on until the mask is done, meets a limit, or the slice is used up. False: there is more to
  // do. Every call gets further.
  bool Advance(WorkSlice* slice);

  // The automaton's state that names the limit; kDead: the mask is complete.
  StateId limit() const { return limit_; }
  // The row, without stop ids. Once. REQUIRES: Advance has returned true, without a limit.
  MaskWords TakeWords() { return std::move(words_); }

 private:
  enum class Answer { kNo, kYes, kUnknown, kStopped };

  // Whether every text of a language may follow the state.
  class Look {
   public:
    Look(const ByteDfa* language, StateId state) : language_(*language) { Visit(0, state); }

    // Unknown after `pairs_max` pairs of states.
    Answer Advance(size_t pairs_max, MaskWork* work);

   private:
    struct Pair {
      uint32_t in_language = 0;
      StateId in_grammar = 0;
    };
    void Visit(uint32_t in_language, StateId in_grammar);
    // What the steps of a pair say; kYes: nothing against it.
    Answer StepPair(Pair pair, MaskWork* work);

    const ByteDfa& language_;
    std::vector<Pair> pairs_;
    IdTable seen_;         // places in pairs_
    size_t num_done_ = 0;  // of pairs_
  };
  // The tokens of a slice, one after another.
  struct Walk {
    std::vector<LazyAutomaton::Steps> steps;  // by depth
    uint32_t node = 0;
  };

  // Each does a part, and returns false if the work must stop: it is paused, or met a limit.
  bool DoCover();
  bool DoSlice();
  bool DoWalk(const TokenTrie& trie);

  Answer Ask(const ByteDfa& language, size_t pairs_max);
  void Add(const std::vector<uint32_t>& mask, const std::vector<bool>& slices);
  bool IsNeeded(const SliceCover::Part& part) const;
  // What the present call has taken from its slice. A step along known states costs no unit of the
  // mask's bound, but it takes as long as one.
  uint64_t Taken() const { return budget_->units() + num_walked_; }
  // False: the slice is used up.
  bool MayGoOn() const { return Taken() < pause_units_; }

  const MaskBuilder& builder_;
  LazyAutomaton& automaton_;
  const StateId state_;
  MaskWords words_;
  std::vector<bool> is_done_;  // of the builder's slices
  StateId limit_ = LazyAutomaton::kDead;
  uint64_t num_units_ = 0;  // spent by the calls before

  // Where the work stands: at a cover, then at a slice. A look or a walk there has begun or not.
  size_t cover_ = 0;
  size_t slice_ = 0;
  // A grammar that counts characters counts those of a smaller language too. Most tokens are too
  // short for that, so only short texts are looked at.
  bool counts_ = false;
  std::optional<Look> look_;
  std::optional<Walk> walk_;

  // Of the present call.
  const Budget* budget_ = nullptr;
  uint64_t num_walked_ = 0;  // nodes
  uint64_t pause_units_ = 0;
};

}  // namespace specd::grammar
