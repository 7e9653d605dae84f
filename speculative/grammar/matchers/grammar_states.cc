#include "speculative/grammar/matchers/grammar_states.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace specd::grammar {
namespace {

void SetBit(TokenId id, bool value, MaskWords* words) {
  uint32_t& word = (*words)[static_cast<size_t>(id) / 32];
  const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(id) % 32);
  word = value ? word | bit : word & ~bit;
}

bool HasBit(TokenId id, const MaskWords& words) {
  return (words[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32) & 1) != 0;
}

}  // namespace

GrammarStates::GrammarStates(std::shared_ptr<TokenizerParts> parts, Network network,
                             size_t network_bytes)
    : parts_(std::move(parts)), network_(std::move(network)), network_bytes_(&parts_->memory) {
  network_bytes_.Add(network_bytes);
}

std::shared_ptr<GrammarStates::Followed> GrammarStates::NewFollowed() const {
  return std::make_shared<Followed>(&network_, *parts_,
                                    parts_->next_grammar.fetch_add(1, std::memory_order_relaxed));
}

std::shared_ptr<GrammarStates::Followed> GrammarStates::Current() const {
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr) {
    current_ = NewFollowed();
  } else if (current_->automaton.IsHalfFull()) {
    // An automaton that was made when no memory was left does not know how texts begin.
    std::shared_ptr<Followed> next = NewFollowed();
    if (LazyAutomaton::IsAlive(next->automaton.start())) current_ = std::move(next);
  }
  return current_;
}

size_t GrammarStates::size_bytes() const {
  const std::lock_guard lock(mutex_);
  const size_t followed_bytes = current_ == nullptr ? 0 : current_->automaton.size_bytes();
  return network_bytes_.size() + followed_bytes;
}

uint32_t GrammarStates::num_states() const {
  const std::lock_guard lock(mutex_);
  return current_ == nullptr ? 0 : current_->automaton.num_states();
}

std::shared_ptr<const GrammarStates::StopSet> GrammarStates::InternStops(
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

std::shared_ptr<MaskWork> GrammarStates::Followed::TakeWork(StateId state) {
  const std::lock_guard lock(mutex_);
  const auto known = works_.find(state);
  if (known == works_.end()) return nullptr;
  std::shared_ptr<MaskWork> work = known->second.lock();
  works_.erase(known);
  return work;
}

void GrammarStates::Followed::LeaveWork(StateId state, const std::shared_ptr<MaskWork>& work) {
  const std::lock_guard lock(mutex_);
  // A matcher that gave up its work has left an entry.
  std::erase_if(works_, [](const auto& entry) { return entry.second.expired(); });
  works_[state] = work;
}

MaskCache::Words GrammarStates::TextRowOf(Followed& followed, StateId state, WorkSlice* slice,
                                          RowAnswer* answer) const {
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = kNoStops};
  // One matcher at a time builds the row of a key, so it has the work alone.
  return parts_->masks.FindOrBuild(key, [&]() -> MaskCache::Words {
    if (state == kTerminated) return parts_->no_ids;
    std::shared_ptr<MaskWork> work = followed.TakeWork(state);
    if (work == nullptr) {
      work = std::make_shared<MaskWork>(&parts_->builder, &followed.automaton, state);
    }
    if (!work->Advance(slice)) {
      followed.LeaveWork(state, work);
      answer->work = std::move(work);
      return nullptr;
    }
    answer->limit = work->limit();
    if (answer->limit != LazyAutomaton::kDead) return nullptr;
    return std::make_shared<const MaskWords>(work->TakeWords());
  });
}

GrammarStates::RowAnswer GrammarStates::RowOf(Followed& followed, StateId state,
                                              const StopSet& stops, WorkSlice* slice) const {
  if (LazyAutomaton::IsLimit(state)) return {.row = MaskRow(parts_->no_ids), .limit = state};
  if (state != kTerminated) state = followed.automaton.Near(state);
  const bool may_end = state == kTerminated || followed.automaton.IsAccepting(state);
  const MaskCache::Key key = {.grammar = followed.number, .state = state, .stop_set = stops.number};
  const auto known = [&] { return parts_->masks.Find(key); };
  if (may_end) {
    if (MaskCache::Words row = known(); row != nullptr) return {.row = MaskRow(row)};
  }
  RowAnswer answer;
  MaskCache::Words row = TextRowOf(followed, state, slice, &answer);
  if (row == nullptr) {
    answer.row = MaskRow(parts_->no_ids);
    return answer;
  }
  // Where a text may not end, the row of its texts seldom has a stop id, and serves all stop sets.
  const bool is_same = std::all_of(stops.ids.begin(), stops.ids.end(),
                                   [&](TokenId id) { return HasBit(id, *row) == may_end; });
  if (!is_same) {
    MaskCache::Words with_stops = may_end ? nullptr : known();
    if (with_stops == nullptr) {
      MaskWords words = *row;
      for (const TokenId id : stops.ids) SetBit(id, may_end, &words);
      with_stops = parts_->masks.Insert(key, std::make_shared<const MaskWords>(std::move(words)));
    }
    row = std::move(with_stops);
  }
  answer.row = MaskRow(std::move(row));
  return answer;
}

StateId GrammarStates::After(Followed& followed, StateId state, TokenId id) const {
  if (id < 0 || id >= parts_->vocab_size || parts_->vocabulary.IsSpecial(id)) {
    return LazyAutomaton::kDead;
  }
  const std::string_view bytes = parts_->vocabulary.Bytes(id);
  return bytes.empty() ? LazyAutomaton::kDead : followed.automaton.StepText(state, bytes);
}

}  // namespace specd::grammar
