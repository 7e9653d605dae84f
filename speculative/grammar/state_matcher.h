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
  // REQUIRES: the network has a text.
  StateGrammar(std::shared_ptr<TokenizerParts> parts, Network network,
               std::vector<std::string> warnings);

  std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions& options) const override;
  std::span<const std::string> warnings() const override { return warnings_; }
  size_t size_bytes() const override { return network_.size_bytes() + automaton_.size_bytes(); }

 private:
  friend class StateMatcher;

  // Sorted stop ids that are inside the vocabulary, and their number in this grammar.
  struct StopSet {
    std::vector<TokenId> ids;
    uint32_t number = 0;
  };
  static constexpr uint32_t kNoStops = 0;
  // A state after a stop id; the automaton has no such state.
  static constexpr StateId kTerminated = ~StateId{0};

  const StopSet* InternStops(std::span<const TokenId> ids) const;
  MaskRow RowOf(StateId state, const StopSet& stops) const;
  MaskCache::Words TextRowOf(StateId state) const;
  StateId After(StateId state, TokenId id) const;
  StateId After(StateId state, std::string_view text) const;

  const std::shared_ptr<TokenizerParts> parts_;
  const Network network_;
  const std::vector<std::string> warnings_;
  const uint64_t number_;  // of this grammar, in the cache
  // Its states are made as texts are met; every method is safe from any thread.
  mutable LazyAutomaton automaton_;
  mutable std::mutex stops_mutex_;
  // Requests have stop ids of their own; a set is kept as long as the grammar, and never moves.
  mutable std::map<std::vector<TokenId>, std::unique_ptr<StopSet>> stop_sets_;
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

 private:
  bool IsStop(TokenId id) const;

  std::shared_ptr<const StateGrammar> grammar_;
  const StateGrammar::StopSet* stops_;
  std::vector<StateId> states_;  // before the first token, and after each
};

}  // namespace specd::grammar
