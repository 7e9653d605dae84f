#include "speculative/grammar/state_matcher.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

// The longest text that ForcedText gives: a draft is no longer.
constexpr size_t kForcedBytesMax = 1024;

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
      warnings_(std::move(warnings)),
      current_(NewFollowed()) {}

absl::StatusOr<std::shared_ptr<const StateGrammar>> StateGrammar::Create(
    std::shared_ptr<TokenizerParts> parts, Network network, std::vector<std::string> warnings) {
  std::shared_ptr<const StateGrammar> grammar(
      new StateGrammar(std::move(parts), std::move(network), std::move(warnings)));
  if (!LazyAutomaton::IsAlive(grammar->current_->automaton.start())) {
    return absl::ResourceExhaustedError(fmt::format(
        "the texts of the constraint begin in more than {} ways: join alternatives that begin "
        "alike",
        LazyAutomaton::kItemsMax));
  }
  return grammar;
}

std::shared_ptr<StateGrammar::Followed> StateGrammar::NewFollowed() const {
  return std::make_shared<Followed>(&network_,
                                    parts_->next_grammar.fetch_add(1, std::memory_order_relaxed));
}

std::shared_ptr<StateGrammar::Followed> StateGrammar::Current() const {
  const std::lock_guard lock(mutex_);
  if (current_->automaton.IsHalfFull()) current_ = NewFollowed();
  return current_;
}

size_t StateGrammar::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return network_.size_bytes() + current_->automaton.size_bytes();
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
  set->number = ++num_stop_sets_;  // 0 is kNoStops
  known = set;
  return set;
}

MaskCache::Words StateGrammar::TextRowOf(Followed& followed, StateId state) const {
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = kNoStops};
  if (MaskCache::Words row = parts_->masks.Find(key); row != nullptr) return row;
  const size_t num_words = (static_cast<size_t>(parts_->vocab_size) + 31) / 32;
  std::vector<uint32_t> words = state == kTerminated
                                    ? std::vector<uint32_t>(num_words)
                                    : parts_->builder.Build(&followed.automaton, state);
  return parts_->masks.Insert(key, std::make_shared<const std::vector<uint32_t>>(std::move(words)));
}

MaskRow StateGrammar::RowOf(Followed& followed, StateId state, const StopSet& stops) const {
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = stops.number};
  if (MaskCache::Words row = parts_->masks.Find(key); row != nullptr) return MaskRow(row);
  MaskCache::Words row = TextRowOf(followed, state);
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

MaskRow StateMatcher::Mask() { return grammar_->RowOf(*followed_, states_.back(), *stops_); }

bool StateMatcher::Accept(TokenId id) {
  if (IsStop(id)) {
    if (!IsAccepting()) return false;
    states_.push_back(StateGrammar::kTerminated);
    return true;
  }
  if (IsTerminated()) return false;
  const StateId next = grammar_->After(*followed_, states_.back(), id);
  if (!LazyAutomaton::IsAlive(next)) return false;
  states_.push_back(next);
  return true;
}

bool StateMatcher::AcceptText(std::string_view text) {
  if (IsTerminated()) return false;
  const StateId next = followed_->automaton.StepText(states_.back(), text);
  if (!LazyAutomaton::IsAlive(next)) return false;
  states_.push_back(next);
  return true;
}

void StateMatcher::Rollback(size_t num_tokens) {
  SPECD_CHECK(num_tokens <= num_accepted());
  states_.resize(states_.size() - num_tokens);
}

std::unique_ptr<GrammarMatcher> StateMatcher::Fork() const {
  return std::make_unique<StateMatcher>(*this);
}

bool StateMatcher::IsAccepting() {
  return IsTerminated() || followed_->automaton.IsAccepting(states_.back());
}

bool StateMatcher::IsFinished() {
  return !IsTerminated() && IsAccepting() &&
         followed_->automaton.NextBytes(states_.back()).IsEmpty();
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
