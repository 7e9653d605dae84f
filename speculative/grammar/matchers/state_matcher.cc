#include "speculative/grammar/matchers/state_matcher.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"

namespace specd::grammar {
namespace {

// The longest text that ForcedText gives: a draft is no longer.
constexpr size_t kForcedBytesMax = 1024;
// The states that a move takes along: those of a draft and the one before it.
constexpr size_t kStatesKept = size_t{kNodesMax} + 1;
// An automaton has grown by this before it is left.
constexpr size_t kMoveBytesMin = size_t{1} << 20;

MatcherFault FaultOf(StateId state) {
  switch (state) {
    case LazyAutomaton::kTooManyWays:
      return MatcherFault::kTooManyWays;
    case LazyAutomaton::kFull:
      return MatcherFault::kFull;
    case LazyAutomaton::kTooMuchWork:
      return MatcherFault::kTooMuchWork;
    default:
      return MatcherFault::kNone;
  }
}

}  // namespace

StateMatcher::StateMatcher(std::shared_ptr<const GrammarStates> grammar,
                           std::span<const TokenId> stop_ids)
    : grammar_(std::move(grammar)),
      followed_(grammar_->Current()),
      stops_(grammar_->InternStops(stop_ids)) {
  states_.push_back(followed_->automaton.start());
}

uint32_t StateMatcher::NumWays() const {
  return LazyAutomaton::IsAlive(states_.back()) ? followed_->automaton.NumWays(states_.back()) : 0;
}

bool StateMatcher::IsStop(TokenId id) const {
  return std::binary_search(stops_->ids.begin(), stops_->ids.end(), id);
}

std::optional<MaskRow> StateMatcher::TryMask(WorkSlice* slice) {
  try {
    LeaveHalfFull();
    for (int attempt = 0;; ++attempt) {
      GrammarStates::RowAnswer answer = grammar_->RowOf(*followed_, states_.back(), *stops_, slice);
      fault_ = FaultOf(answer.limit);
      if (answer.work != nullptr) {
        work_ = std::move(answer.work);
        num_rows_since_work_ = 0;
        return std::nullopt;
      }
      // The rows of a draft are asked for from its first place on. If the work is for one of them,
      // it is asked for soon.
      if (work_ != nullptr && ++num_rows_since_work_ > kStatesKept) work_ = nullptr;
      if (answer.limit != LazyAutomaton::kFull || !FindRoom(attempt)) return answer.row;
    }
  } catch (const std::bad_alloc&) {
    work_ = nullptr;
    fault_ = MatcherFault::kNoMemory;
    return MaskRow(grammar_->parts().no_ids);
  }
}

bool StateMatcher::Accept(TokenId id) {
  fault_ = MatcherFault::kNone;
  if (id < 0) return false;  // -1 and below are texts here
  if (IsStop(id) ? !IsAccepting() : IsTerminated()) return false;
  return Push(id);
}

bool StateMatcher::AcceptText(std::string_view text) {
  fault_ = MatcherFault::kNone;
  if (IsTerminated()) return false;
  const size_t num_texts = texts_.size();
  try {
    texts_.emplace_back(text);
  } catch (const std::bad_alloc&) {
    fault_ = MatcherFault::kNoMemory;
    return false;
  }
  if (Push(-1 - static_cast<TokenId>(num_texts))) return true;
  texts_.pop_back();
  return false;
}

bool StateMatcher::Push(TokenId entry) {
  try {
    LeaveHalfFull();
    const StateId next = After(entry);
    fault_ = FaultOf(next);
    if (!LazyAutomaton::IsAlive(next)) return false;
    states_.push_back(next);
    history_.push_back(entry);
    return true;
  } catch (const std::bad_alloc&) {
    states_.resize(history_.size() + 1);
    fault_ = MatcherFault::kNoMemory;
    return false;
  }
}

StateId StateMatcher::After(TokenId entry) {
  if (entry >= 0 && IsStop(entry)) return GrammarStates::kTerminated;
  for (int attempt = 0;; ++attempt) {
    const StateId state = states_.back();
    const StateId next = entry >= 0 ? grammar_->After(*followed_, state, entry)
                                    : followed_->automaton.StepText(state, texts_[-1 - entry]);
    if (next != LazyAutomaton::kFull || !FindRoom(attempt)) return next;
  }
}

void StateMatcher::LeaveHalfFull() {
  if (work_ != nullptr) return;  // a move would lose what is done of the mask
  const LazyAutomaton& automaton = followed_->automaton;
  // If this matcher's own stacks fill half of an automaton, a move makes no room.
  if (!automaton.IsHalfFull() || automaton.size_bytes() < joined_bytes_ + kMoveBytesMin) return;
  MoveTo(grammar_->Current());
}

bool StateMatcher::FindRoom(int attempt) {
  // Other texts may fill the current automaton at the same time; the second one is this text's own.
  if (attempt == 0) return MoveTo(grammar_->Current());
  return attempt == 1 && MoveTo(grammar_->NewFollowed());
}

bool StateMatcher::MoveTo(std::shared_ptr<GrammarStates::Followed> next) {
  if (next == followed_ || !LazyAutomaton::IsAlive(next->automaton.start())) return false;
  const size_t num_kept = std::min(states_.size(), kStatesKept);
  const size_t first = std::max(states_.size() - num_kept, first_known_);
  size_t end = first;
  while (end < states_.size() && LazyAutomaton::IsAlive(states_[end]) &&
         states_[end] != GrammarStates::kTerminated) {
    ++end;
  }
  const std::vector<StateId> moved =
      next->automaton.Import(followed_->automaton, std::span(states_).subspan(first, end - first));
  if (moved.size() != end - first) return false;
  std::copy(moved.begin(), moved.end(), states_.begin() + static_cast<int64_t>(first));
  states_[0] = next->automaton.start();
  first_known_ = first;
  followed_ = std::move(next);
  joined_bytes_ = followed_->automaton.size_bytes();
  return true;
}

void StateMatcher::Rollback(size_t num_tokens) {
  SPECD_CHECK(num_tokens <= num_accepted());
  fault_ = MatcherFault::kNone;
  for (; num_tokens > 0; --num_tokens) {
    if (history_.back() < 0) texts_.pop_back();
    history_.pop_back();
    states_.pop_back();
  }
  if (states_.size() > 1 && states_.size() <= first_known_) Replay();
  if (states_.size() == 1) first_known_ = 0;
}

void StateMatcher::Replay() {
  std::vector<TokenId> history = std::exchange(history_, {});
  states_.resize(1);
  first_known_ = 0;
  try {
    FollowAgain(history);
  } catch (const std::bad_alloc&) {
    states_.resize(history.size() + 1, LazyAutomaton::kFull);
  }
  history_ = std::move(history);
}

void StateMatcher::FollowAgain(const std::vector<TokenId>& history) {
  for (const TokenId entry : history) {
    LeaveHalfFull();
    // A limit that this text did not meet before stays as its state, and Mask names it.
    states_.push_back(LazyAutomaton::IsLimit(states_.back()) ? states_.back() : After(entry));
  }
}

std::unique_ptr<GrammarMatcher> StateMatcher::Fork() const {
  return std::make_unique<StateMatcher>(*this);
}

bool StateMatcher::IsAccepting() {
  return IsTerminated() || followed_->automaton.IsAccepting(states_.back());
}

bool StateMatcher::IsFinished() {
  fault_ = MatcherFault::kNone;
  return !IsTerminated() && IsAccepting() && !HasText();
}

bool StateMatcher::HasText() {
  const ByteSet& next = followed_->automaton.NextBytes(states_.back());
  if (next.IsEmpty()) return false;
  if (!(next & stops_->one_byte_tokens).IsEmpty()) return true;
  const MaskRow row = Mask();
  if (fault_ != MatcherFault::kNone) return true;
  const std::span<const uint32_t> words = row.words();
  size_t num_stops = 0;
  for (const TokenId id : stops_->ids) num_stops += row.Allows(id) ? 1 : 0;
  size_t num_ids = 0;
  for (const uint32_t word : words) num_ids += static_cast<size_t>(std::popcount(word));
  return num_ids > num_stops;
}

std::string StateMatcher::ForcedText() {
  std::string text;
  LazyAutomaton& automaton = followed_->automaton;
  for (StateId state = states_.back(); text.size() < kForcedBytesMax;) {
    if (state == GrammarStates::kTerminated || automaton.IsAccepting(state)) break;
    const ByteSet& bytes = automaton.NextBytes(state);
    if (bytes.Size() != 1) break;
    text.push_back(static_cast<char>(bytes.First()));
    state = automaton.Step(state, bytes.First());
    if (!LazyAutomaton::IsAlive(state)) break;
  }
  return text;
}

}  // namespace specd::grammar
