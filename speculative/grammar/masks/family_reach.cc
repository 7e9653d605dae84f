#include "speculative/grammar/masks/family_reach.h"

#include <algorithm>

#include "speculative/grammar/base/budget.h"

namespace specd::grammar {
namespace {

// A grammar that reads one text in many ways has many states after texts of one length.
constexpr size_t kStatesMax = 16;
// A character that leads to more states, or by more pairs, is left to the walk of the tokens.
constexpr size_t kNextMax = 1024;
constexpr size_t kPairsMax = 2048;

bool Has(const std::vector<StateId>& states, StateId state) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

FamilyReach::FamilyReach(const TokenFamily* family, LazyAutomaton* automaton, StateId state)
    : family_(*family), automaton_(*automaton), states_{state} {
  if (family_.first == family_.other) met_.push_back(state);
}

bool FamilyReach::BeginCharacter() {
  const ByteSet& bytes = count_ == 0 ? family_.first_bytes : family_.other_bytes;
  is_end_ = true;
  bool may_go_on = count_ < TokenFamily::kCharactersMax;
  for (const StateId state : states_) {
    const ByteSet both = automaton_.NextBytes(state) & bytes;
    is_end_ = is_end_ && both.IsEmpty();
    may_go_on = may_go_on && both == bytes;
  }
  if (is_end_ || !may_go_on) return false;
  pairs_.clear();
  seen_.Clear();
  num_done_ = 0;
  for (const StateId state : states_) Visit(0, state);
  return true;
}

FamilyReach::Progress FamilyReach::StepOn() {
  if (pairs_.empty() && !BeginCharacter()) return Progress::kDone;
  if (!StepPair(pairs_[num_done_])) {
    return limit_ == LazyAutomaton::kDead ? Progress::kDone : Progress::kLimit;
  }
  if (next_.size() > kNextMax || pairs_.size() > kPairsMax) return Progress::kDone;
  if (++num_done_ < pairs_.size()) return Progress::kMore;
  pairs_.clear();
  const bool has_new =
      std::any_of(next_.begin(), next_.end(), [&](StateId state) { return !Has(met_, state); });
  if (!has_new) {
    count_ = kUnbounded;
    return Progress::kDone;
  }
  ++count_;
  if (next_.size() > kStatesMax) return Progress::kDone;
  states_.swap(next_);
  next_.clear();
  met_.insert(met_.end(), states_.begin(), states_.end());
  return Progress::kMore;
}

void FamilyReach::Visit(uint32_t in_character, StateId in_grammar) {
  const uint32_t hash = IdTable::Mix(uint64_t{in_character} << 32 | in_grammar);
  const auto is_pair = [&](uint32_t i) {
    return pairs_[i].in_character == in_character && pairs_[i].in_grammar == in_grammar;
  };
  if (seen_.Find(hash, is_pair) != IdTable::kNone) return;
  seen_.Reserve();
  pairs_.push_back({in_character, in_grammar});
  seen_.Insert(hash, static_cast<uint32_t>(pairs_.size() - 1));
}

void FamilyReach::AddNext(StateId state) {
  if (!Has(next_, state)) next_.push_back(state);
}

bool FamilyReach::StepPair(Pair pair) {
  const Network& network = automaton_.network();
  const ByteDfa& character = OneCharacter();
  const LazyAutomaton::Steps steps = automaton_.StepsFrom(pair.in_grammar);
  uint64_t num_steps = 0;
  for (const ByteDfa::Edge& edge : character.states[pair.in_character].edges) {
    const bool is_complete = character.states[edge.target].accepting;
    StateId last = LazyAutomaton::kDead;
    // Bytes of one class are neighbours, and lead to one state.
    const int class_last = network.byte_class(edge.last);
    for (int one = network.byte_class(edge.first); one <= class_last; ++one) {
      ++num_steps;
      const StateId next = automaton_.StepClass(steps, static_cast<uint8_t>(one));
      if (next == last) continue;
      last = next;
      // No token may have this text, so the tokens decide.
      if (next == LazyAutomaton::kDead || next == LazyAutomaton::kTooManyWays) return false;
      if (LazyAutomaton::IsLimit(next)) {
        limit_ = next;
        return false;
      }
      if (is_complete) {
        AddNext(next);
      } else {
        Visit(edge.target, next);
      }
    }
  }
  if (Budget::Spend(num_steps)) return true;
  limit_ = LazyAutomaton::kTooMuchWork;
  return false;
}

}  // namespace specd::grammar
