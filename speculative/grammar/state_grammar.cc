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
    case MatcherFault::kLibrary:
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
  network_bytes_.Add(network_.size_bytes() + sizeof(StateGrammar));
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

std::shared_ptr<MaskWork> StateGrammar::Followed::WorkOf(const MaskBuilder& builder,
                                                         StateId state) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<MaskWork>& known = works_[state];
  if (std::shared_ptr<MaskWork> work = known.lock(); work != nullptr) return work;
  auto work = std::make_shared<MaskWork>(&builder, &automaton, state);
  known = work;
  return work;
}

void StateGrammar::Followed::ForgetWork(StateId state) {
  const std::lock_guard lock(mutex_);
  works_.erase(state);
  // A matcher that left its work behind has left an entry too.
  std::erase_if(works_, [](const auto& entry) { return entry.second.expired(); });
}

MaskCache::Words StateGrammar::TextRowOf(Followed& followed, StateId state, WorkSlice* slice,
                                         RowAnswer* answer) const {
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = kNoStops};
  // One matcher at a time builds the row of a key, so it has the work alone.
  return parts_->masks.FindOrBuild(key, [&]() -> MaskCache::Words {
    if (state == kTerminated) return parts_->no_ids;
    std::shared_ptr<MaskWork> work = followed.WorkOf(parts_->builder, state);
    if (!work->Advance(slice)) {
      answer->work = std::move(work);
      return nullptr;
    }
    followed.ForgetWork(state);
    answer->limit = work->limit();
    if (answer->limit != LazyAutomaton::kDead) return nullptr;
    return std::make_shared<const std::vector<uint32_t>>(work->TakeWords());
  });
}

StateGrammar::RowAnswer StateGrammar::RowOf(Followed& followed, StateId state, const StopSet& stops,
                                            WorkSlice* slice) const {
  if (LazyAutomaton::IsLimit(state)) return {.row = MaskRow(parts_->no_ids), .limit = state};
  if (state != kTerminated) state = followed.automaton.Near(state);
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = stops.number};
  if (MaskCache::Words row = parts_->masks.Find(key); row != nullptr) return {.row = MaskRow(row)};
  RowAnswer answer;
  MaskCache::Words row = TextRowOf(followed, state, slice, &answer);
  if (row == nullptr) {
    answer.row = MaskRow(parts_->no_ids);
    return answer;
  }
  const bool may_end = state == kTerminated || followed.automaton.IsAccepting(state);
  const bool is_same = std::all_of(stops.ids.begin(), stops.ids.end(),
                                   [&](TokenId id) { return HasBit(id, *row) == may_end; });
  if (!is_same) {
    std::vector<uint32_t> words = *row;
    for (const TokenId id : stops.ids) SetBit(id, may_end, &words);
    row = std::make_shared<const std::vector<uint32_t>>(std::move(words));
  }
  answer.row = MaskRow(parts_->masks.Insert(key, std::move(row)));
  return answer;
}

StateId StateGrammar::After(Followed& followed, StateId state, TokenId id) const {
  if (id < 0 || id >= parts_->vocab_size || parts_->vocabulary.IsSpecial(id)) {
    return LazyAutomaton::kDead;
  }
  const std::string_view bytes = parts_->vocabulary.Bytes(id);
  return bytes.empty() ? LazyAutomaton::kDead : followed.automaton.StepText(state, bytes);
}

}  // namespace specd::grammar
