#include "speculative/grammar/state_matcher.h"

#include <algorithm>
#include <bit>
#include <new>
#include <string_view>
#include <utility>

#include "fmt/format.h"
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

// A constraint is followed for this many tokens when it is compiled, if its first mask makes more
// states than a string with a bound on its length does (docs/GRAMMARS.md, "From a text to a mask").
constexpr size_t kProbeSteps = 3;
constexpr uint32_t kProbedStates = 4096;

const char* FaultName(MatcherFault fault) {
  switch (fault) {
    case MatcherFault::kTooManyWays:
      return "too many ways to go on";
    case MatcherFault::kFull:
      return "too many states";
    case MatcherFault::kTooMuchWork:
      return "too much work";
    case MatcherFault::kNone:
    case MatcherFault::kLibrary:
    case MatcherFault::kNoMemory:
      break;
  }
  return "none";
}

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

void SetBit(TokenId id, bool value, std::vector<uint32_t>* words) {
  uint32_t& word = (*words)[static_cast<size_t>(id) / 32];
  const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(id) % 32);
  word = value ? word | bit : word & ~bit;
}

bool HasBit(TokenId id, const std::vector<uint32_t>& words) {
  return (words[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32) & 1) != 0;
}

}  // namespace

// ---- the grammar --------------------------------------------------------------------------------

StateGrammar::StateGrammar(std::shared_ptr<TokenizerParts> parts, Network network,
                           std::vector<std::string> warnings)
    : parts_(std::move(parts)),
      network_(std::move(network)),
      network_bytes_(&parts_->memory),
      warnings_(std::move(warnings)),
      current_(NewFollowed()) {
  network_bytes_.Add(network_.size_bytes());
}

absl::StatusOr<std::shared_ptr<const StateGrammar>> StateGrammar::Create(
    std::shared_ptr<TokenizerParts> parts, Network network, std::vector<std::string> warnings) {
  std::shared_ptr<const StateGrammar> grammar(
      new StateGrammar(std::move(parts), std::move(network), std::move(warnings)));
  if (grammar->current_->automaton.start() == LazyAutomaton::kFull) {
    return absl::UnavailableError(
        "no memory is left to follow the constraint; close sequences, or try again later");
  }
  if (!LazyAutomaton::IsAlive(grammar->current_->automaton.start())) {
    return absl::ResourceExhaustedError(fmt::format(
        "the texts of the constraint begin in more than {} ways: join alternatives that begin "
        "alike",
        LazyAutomaton::kItemsMax));
  }
  if (absl::Status status = grammar->Probe(); !status.ok()) return status;
  return grammar;
}

absl::Status StateGrammar::Probe() const {
  StateMatcher matcher(shared_from_this(), {});
  for (size_t step = 0; step <= kProbeSteps; ++step) {
    const MaskRow row = matcher.Mask();
    const MatcherFault fault = matcher.fault();
    if (fault == MatcherFault::kNoMemory ||
        (fault == MatcherFault::kFull && parts_->memory.IsExhausted())) {
      return absl::UnavailableError("no memory is left to follow the constraint; try again later");
    }
    if (fault != MatcherFault::kNone) {
      return absl::ResourceExhaustedError(
          fmt::format("the mask after {} tokens of a text of the constraint meets a limit already "
                      "({}): shorten "
                      "repetitions of alternatives that begin alike",
                      step, FaultName(fault)));
    }
    const auto words = row.words();
    const bool has_ids =
        std::any_of(words.begin(), words.end(), [](uint32_t word) { return word != 0; });
    if (step == 0 && !matcher.IsAccepting() && !has_ids) {
      return absl::InvalidArgumentError(
          "no token of the tokenizer begins a text of the constraint");
    }
    if (current_->automaton.num_states() < kProbedStates) break;
    // Ids far apart: long tokens and short ones, of several kinds.
    TokenId id = kNoToken;
    for (size_t i = 0; i < words.size() && id == kNoToken; ++i) {
      const size_t at = (words.size() * (2 * step + 1) / (2 * kProbeSteps + 1) + i) % words.size();
      if (words[at] != 0) id = static_cast<TokenId>(32 * at + std::countr_zero(words[at]));
    }
    if (id == kNoToken || !matcher.Accept(id)) break;
  }
  return absl::OkStatus();
}

std::shared_ptr<StateGrammar::Followed> StateGrammar::NewFollowed() const {
  return std::make_shared<Followed>(&network_, &parts_->memory,
                                    parts_->next_grammar.fetch_add(1, std::memory_order_relaxed));
}

std::shared_ptr<StateGrammar::Followed> StateGrammar::Current() const {
  const std::lock_guard lock(mutex_);
  if (current_->automaton.IsHalfFull()) {
    // An automaton that was made when no memory was left does not know how texts begin.
    std::shared_ptr<Followed> next = NewFollowed();
    if (LazyAutomaton::IsAlive(next->automaton.start())) current_ = std::move(next);
  }
  return current_;
}

size_t StateGrammar::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return network_bytes_.size() + current_->automaton.size_bytes();
}

std::unique_ptr<GrammarMatcher> StateGrammar::NewMatcher(const MatcherOptions& options) const {
  return std::make_unique<StateMatcher>(shared_from_this(), options.stop_ids);
}

std::shared_ptr<const StateGrammar::StopSet> StateGrammar::InternStops(
    std::span<const TokenId> ids) const {
  std::vector<TokenId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::erase_if(sorted, [&](TokenId id) { return id < 0 || id >= parts_->vocab_size; });
  const std::lock_guard lock(mutex_);
  if (stop_sets_.size() > stop_sets_max_) {
    std::erase_if(stop_sets_, [](const auto& entry) { return entry.second.expired(); });
    stop_sets_max_ = 2 * stop_sets_.size() + 64;
  }
  std::weak_ptr<const StopSet>& known = stop_sets_[sorted];
  if (std::shared_ptr<const StopSet> set = known.lock(); set != nullptr) return set;
  auto set = std::make_shared<StopSet>();
  set->ids = std::move(sorted);
  set->one_byte_tokens = parts_->one_byte_tokens;
  for (const TokenId id : set->ids) {
    const std::string_view bytes = parts_->vocabulary.Bytes(id);
    if (bytes.size() == 1) set->one_byte_tokens.Remove(static_cast<uint8_t>(bytes[0]));
  }
  set->number = ++num_stop_sets_;  // 0 is kNoStops
  known = set;
  return set;
}

MaskCache::Words StateGrammar::TextRowOf(Followed& followed, StateId state, StateId* limit) const {
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = kNoStops};
  return parts_->masks.FindOrBuild(key, [&]() -> MaskCache::Words {
    auto words = std::make_shared<std::vector<uint32_t>>();
    if (state == kTerminated) {
      words->assign(parts_->no_ids->size(), 0);
      return words;
    }
    *limit = parts_->builder.Build(&followed.automaton, state, words.get());
    return *limit == LazyAutomaton::kDead ? words : nullptr;
  });
}

MaskRow StateGrammar::RowOf(Followed& followed, StateId state, const StopSet& stops,
                            StateId* limit) const {
  *limit = LazyAutomaton::IsLimit(state) ? state : LazyAutomaton::kDead;
  if (*limit != LazyAutomaton::kDead) return MaskRow(parts_->no_ids);
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = stops.number};
  if (MaskCache::Words row = parts_->masks.Find(key); row != nullptr) return MaskRow(row);
  MaskCache::Words row = TextRowOf(followed, state, limit);
  if (row == nullptr) return MaskRow(parts_->no_ids);
  const bool may_end = state == kTerminated || followed.automaton.IsAccepting(state);
  const bool is_same = std::all_of(stops.ids.begin(), stops.ids.end(),
                                   [&](TokenId id) { return HasBit(id, *row) == may_end; });
  if (!is_same) {
    std::vector<uint32_t> words = *row;
    for (const TokenId id : stops.ids) SetBit(id, may_end, &words);
    row = std::make_shared<const std::vector<uint32_t>>(std::move(words));
  }
  return MaskRow(parts_->masks.Insert(key, std::move(row)));
}

StateId StateGrammar::After(Followed& followed, StateId state, TokenId id) const {
  if (id < 0 || id >= parts_->vocab_size || parts_->vocabulary.IsSpecial(id)) {
    return LazyAutomaton::kDead;
  }
  const std::string_view bytes = parts_->vocabulary.Bytes(id);
  return bytes.empty() ? LazyAutomaton::kDead : followed.automaton.StepText(state, bytes);
}

// ---- the matcher --------------------------------------------------------------------------------

StateMatcher::StateMatcher(std::shared_ptr<const StateGrammar> grammar,
                           std::span<const TokenId> stop_ids)
    : grammar_(std::move(grammar)),
      followed_(grammar_->Current()),
      stops_(grammar_->InternStops(stop_ids)) {
  states_.push_back(followed_->automaton.start());
}

bool StateMatcher::IsStop(TokenId id) const {
  return std::binary_search(stops_->ids.begin(), stops_->ids.end(), id);
}

MaskRow StateMatcher::Mask() {
  try {
    LeaveHalfFull();
    for (int attempt = 0;; ++attempt) {
      StateId limit = LazyAutomaton::kDead;
      MaskRow row = grammar_->RowOf(*followed_, states_.back(), *stops_, &limit);
      fault_ = FaultOf(limit);
      if (limit != LazyAutomaton::kFull || !FindRoom(attempt)) return row;
    }
  } catch (const std::bad_alloc&) {
    fault_ = MatcherFault::kNoMemory;
    return MaskRow(grammar_->parts_->no_ids);
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
  if (entry >= 0 && IsStop(entry)) return StateGrammar::kTerminated;
  for (int attempt = 0;; ++attempt) {
    const StateId state = states_.back();
    const StateId next =
        entry >= 0 ? grammar_->After(*followed_, state, entry)
                   : followed_->automaton.StepText(state, texts_[static_cast<size_t>(-1 - entry)]);
    if (next != LazyAutomaton::kFull || !FindRoom(attempt)) return next;
  }
}

void StateMatcher::LeaveHalfFull() {
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

bool StateMatcher::MoveTo(std::shared_ptr<StateGrammar::Followed> next) {
  if (next == followed_ || !LazyAutomaton::IsAlive(next->automaton.start())) return false;
  const size_t num_kept = std::min(states_.size(), kStatesKept);
  const size_t first = std::max(states_.size() - num_kept, first_known_);
  size_t end = first;
  while (end < states_.size() && LazyAutomaton::IsAlive(states_[end]) &&
         states_[end] != StateGrammar::kTerminated) {
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
    if (state == StateGrammar::kTerminated || automaton.IsAccepting(state)) break;
    const ByteSet& bytes = automaton.NextBytes(state);
    if (bytes.Size() != 1) break;
    text.push_back(static_cast<char>(bytes.First()));
    state = automaton.Step(state, bytes.First());
    if (!LazyAutomaton::IsAlive(state)) break;
  }
  return text;
}

}  // namespace specd::grammar
