// MaskBuilder finds the tokens that may follow a state of a grammar, and MaskWork is one mask in
// the making.
//
// It walks the vocabulary along the automaton. Most tokens are not walked: where a grammar allows
// all texts of some characters up to a length, the tokens with such texts are taken as they are
// (vocabulary_slices.h; FamilyReach). The work of one mask is bounded. A mask that meets a limit is
// not built at all: no row has a bit missing. A mask may be built in several calls, so that others
// have their turn between them. A builder is immutable and safe from any number of threads; a work
// belongs to one at a time.
//
//   MaskWork work(&builder, &automaton, state);
//   while (!work.Advance(&slice)) slice = LetOthersGoFirst();
//   if (work.limit() == LazyAutomaton::kDead) Use(work.TakeWords());
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/masks/family_reach.h"
#include "speculative/grammar/masks/mask_words.h"
#include "speculative/grammar/masks/vocabulary_slices.h"
#include "speculative/grammar/states/lazy_automaton.h"

namespace specd::grammar {

class MaskBuilder {
 public:
  explicit MaskBuilder(const TokenTrie& trie)
      : num_words_((static_cast<size_t>(trie.vocab_size()) + 31) / 32),
        vocabulary_(MakeVocabularySlices(trie)) {}

  // The units of work of one mask (budget.h; docs/GRAMMARS.md, "Limits of a sequence").
  static constexpr uint64_t kUnitsMax = uint64_t{1} << 20;
  // Those that looks at families may take; the walk of the tokens needs the rest.
  static constexpr uint64_t kLookUnitsMax = kUnitsMax / 4;

 private:
  friend class MaskWork;

  const size_t num_words_;
  const VocabularySlices vocabulary_;
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
  // The tokens of a slice, one after another. What it has found out serves the next slice too.
  struct Walk {
    // Where the nodes of a depth begin, if their parent is alive.
    struct Level {
      LazyAutomaton::Steps steps;
      const TokenTrie::Branch* branch = nullptr;  // null: of a node that has none
    };
    std::vector<Level> levels;  // by depth
    uint32_t node = 0;
    // What was found out about states: an entry has its place by its state and its family.
    struct Known {
      StateId state = LazyAutomaton::kDead;
      size_t family = 0;
      uint32_t count = 0;  // of a FamilyReach
    };
    std::array<Known, 64> known = {};
  };

  // Each does a part, and returns false if the work must stop: it is paused, or met a limit.
  bool DoFamily();
  bool DoSlice();
  bool DoWalk(const VocabularySlice& slice);

  // Whether all that comes below a node may follow the state there.
  enum class Answer { kNo, kYes, kStopped };
  Answer MayAllFollow(const VocabularySlice::Below& below, StateId state);
  // Goes on with reach_, or begins it. False: the work must stop.
  bool Reach(const TokenFamily& family, StateId state);
  void Allow(std::span<const TokenId> ids);
  bool IsWanted(const TokenFamily& family) const;
  void Add(const std::vector<uint32_t>& mask);
  const ByteSet& NextBytes(const Walk::Level& level) const {
    return automaton_.NextBytes(level.steps.state);
  }
  // What the present call has taken from its slice. A step along known states costs no unit of the
  // mask's bound, but it takes as long as one.
  uint64_t Taken() const { return budget_->units() + num_walked_; }
  // False: the slice is used up.
  bool MayGoOn() const { return Taken() < pause_units_; }

  const VocabularySlices& vocabulary_;
  LazyAutomaton& automaton_;
  const StateId state_;
  const size_t num_words_;
  MaskWords words_;  // empty: no token was found yet
  // By family: its tokens of up to so many characters are decided.
  std::vector<uint32_t> decided_;
  StateId limit_ = LazyAutomaton::kDead;
  uint64_t num_units_ = 0;       // spent by the calls before
  uint64_t num_look_units_ = 0;  // spent by looks at families

  // Where the work stands: before a family, from the last one on, then at a slice. What is done
  // there has begun or not.
  size_t num_families_;
  std::optional<FamilyReach> reach_;
  size_t slice_ = 0;
  bool walks_ = false;
  Walk walk_;

  // Of the present call.
  const Budget* budget_ = nullptr;
  uint64_t num_walked_ = 0;  // nodes
  uint64_t pause_units_ = 0;
};

}  // namespace specd::grammar
