// StateGrammar and StateMatcher follow a constraint through the states of a LazyAutomaton.
//
// A matcher is a list of states, one for each accepted token. Rollback shortens the list, and a
// fork copies it. Masks are built once for each state and shared (mask_cache.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/lazy_automaton.h"
#include "speculative/grammar/network.h"
#include "speculative/grammar/specd_backend.h"

namespace specd::grammar {

class StateGrammar : public CompiledGrammar, public std::enable_shared_from_this<StateGrammar> {
 public:
  // ResourceExhausted: the beginnings of the texts are past a limit. REQUIRES: the network has a
  // text.
  static absl::StatusOr<std::shared_ptr<const StateGrammar>> Create(
      std::shared_ptr<TokenizerParts> parts, Network network, std::vector<std::string> warnings);

  std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions& options) const override;
  std::span<const std::string> warnings() const override { return warnings_; }
  size_t size_bytes() const override;

 private:
  friend class StateMatcher;

  // Sorted stop ids that are inside the vocabulary, and a number that no other set of this grammar
  // has had.
  struct StopSet {
    std::vector<TokenId> ids;
    uint32_t number = 0;
  };
  static constexpr uint32_t kNoStops = 0;
  // A state after a stop id; the automaton has no such state.
  static constexpr StateId kTerminated = ~StateId{0};

  // The states that texts have met, and their number in the cache of masks. States are never
  // dropped, so a new text follows a new one when this is half full. Texts that follow the old one
  // keep it.
  struct Followed {
    Followed(const Network* network, uint64_t cache_number)
        : automaton(network), number(cache_number) {}

    LazyAutomaton automaton;
    const uint64_t number;
  };

  StateGrammar(std::shared_ptr<TokenizerParts> parts, Network network,
               std::vector<std::string> warnings);

  std::shared_ptr<Followed> NewFollowed() const;
  std::shared_ptr<Followed> Current() const;
  std::shared_ptr<const StopSet> InternStops(std::span<const TokenId> ids) const;
  MaskRow RowOf(Followed& followed, StateId state, const StopSet& stops) const;
  MaskCache::Words TextRowOf(Followed& followed, StateId state) const;
  StateId After(Followed& followed, StateId state, TokenId id) const;

  const std::shared_ptr<TokenizerParts> parts_;
  const Network network_;
  const std::vector<std::string> warnings_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Followed> current_;
  // The sets that matchers have. Requests have stop ids of their own, so dead entries are swept.
  mutable std::map<std::vector<TokenId>, std::weak_ptr<const StopSet>> stop_sets_;
  mutable size_t stop_sets_max_ = 64;
  mutable uint32_t num_stop_sets_ = 0;
};

class StateMatcher : public GrammarMatcher {
 public:
  StateMatcher(std::shared_ptr<const StateGrammar> grammar, std::span<const TokenId> stop_ids);

  MaskRow Mask() override;
  bool Accept(TokenId id) override;
  bool AcceptText(std::string_view text) override;
  void Rollback(size_t num_tokens) override;
  size_t num_accepted() const override { return states_.size() - 1; }
  std::unique_ptr<GrammarMatcher> Fork() const override;
  bool IsAccepting() override;
  bool IsFinished() override;
  bool IsTerminated() const override { return states_.back() == StateGrammar::kTerminated; }
  std::string ForcedText() override;
  uint64_t StateNumber() const override {
    return (followed_->number + 1) << 32 | uint64_t{states_.back()};
  }

 private:
  bool IsStop(TokenId id) const;

  std::shared_ptr<const StateGrammar> grammar_;
  std::shared_ptr<StateGrammar::Followed> followed_;
  std::shared_ptr<const StateGrammar::StopSet> stops_;
  std::vector<StateId> states_;  // before the first token, and after each
};

}  // namespace specd::grammar
