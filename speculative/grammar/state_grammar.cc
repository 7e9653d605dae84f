#include "speculative/grammar/state_grammar.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "speculative/grammar/state_matcher.h"

namespace specd::grammar {
namespace {

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
    case MatcherFault::kNoMemory:
      break;
  }
  return "none";
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
  return std::make_shared<Followed>(&network_, *parts_,
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
  if (state != kTerminated) state = followed.automaton.Near(state);
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

}  // namespace specd::grammar
