// GrammarStates are what the matchers of one constraint follow: its network, the automaton of the
// states that texts have met, and the mask row of each state.
//
// All matchers of a constraint follow one automaton, until it is half full. Texts that begin or
// move then get a new one (StateMatcher). The automaton that all have left is freed. Rows are built
// once for each state and shared (mask_cache.h). Safe from any number of threads.
//
//   const GrammarStates states(parts, std::move(network), network_bytes);
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/masks/tokenizer_parts.h"
#include "speculative/grammar/matchers/grammar_matcher.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/states/lazy_automaton.h"

namespace specd::grammar {

class GrammarStates {
 public:
  // Sorted stop ids that are inside the vocabulary, and a number that no other set of this grammar
  // has had.
  struct StopSet {
    std::vector<TokenId> ids;
    uint32_t number = 0;
    ByteSet one_byte_tokens;  // without the bytes of the stop ids
  };
  // A state after a stop id; the automaton has no such state.
  static constexpr StateId kTerminated = ~StateId{0};

  // The states that texts have met, and their number in the cache of masks.
  struct Followed {
    Followed(const Network* network, const TokenizerParts& parts, uint64_t cache_number)
        : automaton(network, &parts.memory, parts.longest_token_bytes), number(cache_number) {}

    // The mask of the state in the making, which some matcher has left; null if there is none.
    std::shared_ptr<MaskWork> TakeWork(StateId state);
    void LeaveWork(StateId state, const std::shared_ptr<MaskWork>& work);

    LazyAutomaton automaton;
    const uint64_t number;

   private:
    std::mutex mutex_;
    // Works live as long as a matcher holds them.
    std::map<StateId, std::weak_ptr<MaskWork>> works_;
  };

  // What a matcher gets for a state.
  struct RowAnswer {
    MaskRow row = {};
    // If a limit is met, this names it and the row allows nothing; no such row is kept.
    StateId limit = LazyAutomaton::kDead;
    // Not null: the slice was used up first, and there is no row yet. The matcher holds the work
    // until it asks again.
    std::shared_ptr<MaskWork> work = {};
  };

  // Counts `network_bytes` in the memory of the parts. The first automaton is made when it is asked
  // for. REQUIRES: the network has a text.
  GrammarStates(std::shared_ptr<TokenizerParts> parts, Network network, size_t network_bytes);

  const TokenizerParts& parts() const { return *parts_; }
  size_t size_bytes() const;
  // Those of the automaton for texts that begin now.
  uint32_t num_states() const;

  std::shared_ptr<Followed> NewFollowed() const;
  // The automaton for texts that begin or move now; it is less than half full.
  std::shared_ptr<Followed> Current() const;
  std::shared_ptr<const StopSet> InternStops(std::span<const TokenId> ids) const;
  RowAnswer RowOf(Followed& followed, StateId state, const StopSet& stops, WorkSlice* slice) const;
  StateId After(Followed& followed, StateId state, TokenId id) const;

 private:
  static constexpr uint32_t kNoStops = 0;

  // Null if a limit is met, or the slice is used up; then the answer says which.
  MaskCache::Words TextRowOf(Followed& followed, StateId state, WorkSlice* slice,
                             RowAnswer* answer) const;

  const std::shared_ptr<TokenizerParts> parts_;
  const Network network_;
  CountedBytes network_bytes_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Followed> current_;  // null: no text has begun
  // The sets that matchers have. Requests have stop ids of their own, so dead entries are swept.
  mutable std::map<std::vector<TokenId>, std::weak_ptr<const StopSet>> stop_sets_;
  mutable size_t stop_sets_max_ = 64;
  mutable uint32_t num_stop_sets_ = 0;
};

}  // namespace specd::grammar
