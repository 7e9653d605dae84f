// StateMatcher follows a constraint through the states of a LazyAutomaton.
//
// A matcher is a list of states, one for each accepted token. Rollback shortens the list, and a
// fork copies it. When the automaton is half full, a matcher moves to a new one with its last
// states, which a rollback of a draft needs. A rollback past those follows the accepted tokens
// again. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/matchers/grammar_matcher.h"
#include "speculative/grammar/matchers/grammar_states.h"

namespace specd::grammar {

class StateMatcher : public GrammarMatcher {
 public:
  StateMatcher(std::shared_ptr<const GrammarStates> grammar, std::span<const TokenId> stop_ids);

  std::optional<MaskRow> TryMask(WorkSlice* slice) override;
  MatcherFault fault() const override { return fault_; }
  bool Accept(TokenId id) override;
  bool AcceptText(std::string_view text) override;
  void Rollback(size_t num_tokens) override;
  size_t num_accepted() const override { return states_.size() - 1; }
  std::unique_ptr<GrammarMatcher> Fork() const override;
  bool IsAccepting() override;
  bool IsFinished() override;
  bool IsTerminated() const override { return states_.back() == GrammarStates::kTerminated; }
  std::string ForcedText() override;
  uint32_t NumWays() const;
  uint64_t StateNumber() const override {
    return (followed_->number + 1) << 32 | uint64_t{states_.back()};
  }

 private:
  bool IsStop(TokenId id) const;
  // The present row allows an id that is no stop id. Unknown at a limit: true.
  bool HasText();
  // The state after an entry of history_; it may name a limit.
  StateId After(TokenId entry);
  bool Push(TokenId entry);
  // Moves to another automaton if this one is half full.
  void LeaveHalfFull();
  // Moves to an automaton with more room, for another attempt at what met kFull. False: there is
  // none.
  bool FindRoom(int attempt);
  bool MoveTo(std::shared_ptr<GrammarStates::Followed> next);
  // Follows history_ again from the start.
  void Replay();
  void FollowAgain(const std::vector<TokenId>& history);

  std::shared_ptr<const GrammarStates> grammar_;
  std::shared_ptr<GrammarStates::Followed> followed_;
  std::shared_ptr<const GrammarStates::StopSet> stops_;
  // Before the first token, and after each. After a move, those between the first and first_known_
  // are those of an automaton that was left.
  std::vector<StateId> states_;
  size_t first_known_ = 0;
  size_t joined_bytes_ = 0;  // of the automaton, after the move to it
  // The accepted items: ids, and -1 - i for texts_[i].
  std::vector<TokenId> history_;
  std::vector<std::string> texts_;
  // The mask that the last slice did not suffice for. Null: there is none.
  std::shared_ptr<MaskWork> work_;
  size_t num_rows_since_work_ = 0;
  MatcherFault fault_ = MatcherFault::kNone;
};

}  // namespace specd::grammar
