#include "speculative/grammar/masks/mask_builder.h"

#include <algorithm>
#include <span>

#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

MaskWork::MaskWork(const MaskBuilder* builder, LazyAutomaton* automaton, StateId state)
    : vocabulary_(builder->vocabulary_),
      automaton_(*automaton),
      state_(state),
      num_words_(builder->num_words_),
      decided_(vocabulary_.families.size()),
      num_families_(vocabulary_.families.size()) {}

bool MaskWork::Advance(WorkSlice* slice) {
  const Budget budget({.units = MaskBuilder::kUnitsMax - num_units_});
  budget_ = &budget;
  num_walked_ = 0;
  pause_units_ = std::max<uint64_t>(slice->units, 1);
  bool goes_on = true;
  while (goes_on && num_families_ > 0) goes_on = DoFamily();
  while (goes_on && slice_ < vocabulary_.slices.size()) goes_on = DoSlice();
  if (goes_on && words_.empty()) words_.resize(num_words_);
  num_units_ = std::min(num_units_ + budget.units(), MaskBuilder::kUnitsMax);
  slice->units -= std::min(slice->units, Taken());
  return goes_on || limit_ != LazyAutomaton::kDead;
}

void MaskWork::Add(const std::vector<uint32_t>& mask) {
  if (words_.empty()) {
    words_.assign(mask.begin(), mask.end());
    return;
  }
  uint32_t* const words = words_.data();
  for (size_t i = 0; i < num_words_; ++i) words[i] |= mask[i];
}

bool MaskWork::IsWanted(const TokenFamily& family) const {
  // A smaller family seldom goes further than one that went as far as a look goes.
  return std::any_of(family.contained.begin(), family.contained.end(),
                     [&](size_t each) { return decided_[each] < TokenFamily::kCharactersMax; });
}

bool MaskWork::DoFamily() {
  // The largest one first: it decides those that it contains.
  const TokenFamily& family = vocabulary_.families[num_families_ - 1];
  const ByteSet first_bytes = automaton_.NextBytes(state_) & family.first_bytes;
  if (!IsWanted(family) || (!first_bytes.IsEmpty() && first_bytes != family.first_bytes)) {
    --num_families_;
    return true;
  }
  if (!Reach(family, state_)) return false;
  const uint32_t count = reach_->count();
  const uint32_t decided = reach_->is_end() ? kUnbounded : count;
  bool is_news = false;
  for (const size_t each : family.contained) {
    is_news = is_news || decided_[each] < count;
    decided_[each] = std::max(decided_[each], decided);
  }
  if (is_news) Add(family.MaskOf(count));
  reach_.reset();
  --num_families_;
  return true;
}

bool MaskWork::Reach(const TokenFamily& family, StateId state) {
  if (!reach_.has_value()) reach_.emplace(&family, &automaton_, state);
  FamilyReach::Progress progress = FamilyReach::Progress::kMore;
  // What a look has found so far is true, so it may end at any time.
  while (progress == FamilyReach::Progress::kMore && num_look_units_ < MaskBuilder::kLookUnitsMax) {
    if (!MayGoOn()) return false;
    const uint64_t before = budget_->units();
    progress = reach_->StepOn();
    num_look_units_ += budget_->units() - before;
  }
  if (progress == FamilyReach::Progress::kLimit) limit_ = reach_->limit();
  return progress != FamilyReach::Progress::kLimit;
}

MaskWork::Answer MaskWork::MayAllFollow(const VocabularySlice::Below& below, StateId state) {
  if (below.family == VocabularySlice::kNoFamily) return Answer::kNo;
  const TokenFamily& family = vocabulary_.families[below.family];
  if ((automaton_.NextBytes(state) & family.other_bytes) != family.other_bytes) return Answer::kNo;
  Walk::Known& known = walk_.known[(state * 8 + below.family) % walk_.known.size()];
  if (known.state != state || known.family != below.family) {
    if (!Reach(family, state)) return Answer::kStopped;
    known = {.state = state, .family = below.family, .count = reach_->count()};
    reach_.reset();
  }
  return known.count >= below.characters_max ? Answer::kYes : Answer::kNo;
}

void MaskWork::Allow(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    words_[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
  }
}

bool MaskWork::DoSlice() {
  const VocabularySlice& slice = vocabulary_.slices[slice_];
  const bool is_decided =
      slice.family != VocabularySlice::kNoFamily && decided_[slice.family] >= slice.characters_max;
  if (!walks_ && !is_decided) {
    const Walk::Level begin = {.steps = automaton_.StepsFrom(state_),
                               .branch = slice.tokens.branches().data()};
    const uint32_t first = slice.tokens.NextChild(*begin.branch, NextBytes(begin), 0);
    if (first < slice.tokens.nodes().size()) {
      walks_ = true;
      walk_.levels.resize(std::max(walk_.levels.size(), slice.tokens.depth_max() + 1));
      walk_.levels[0] = begin;
      walk_.node = first;
      if (words_.empty()) words_.resize(num_words_);
    }
  }
  if (walks_) {
    if (!DoWalk(slice)) return false;
    walks_ = false;
  }
  ++slice_;
  return true;
}

bool MaskWork::DoWalk(const VocabularySlice& slice) {
  const TokenTrie& trie = slice.tokens;
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  for (uint32_t& i = walk_.node; i < nodes.size();) {
    if (!MayGoOn()) [[unlikely]]
      return false;
    // A look that was paused at this node goes on, or a small slice would never come to it.
    if (!reach_.has_value()) ++num_walked_;
    const TokenTrie::Node node = nodes[i];
    const Walk::Level& level = walk_.levels[node.depth];
    const StateId next = automaton_.Step(level.steps, node.byte);
    if (!LazyAutomaton::IsAlive(next)) {
      if (next != LazyAutomaton::kDead) [[unlikely]] {
        limit_ = next;
        return false;
      }
      i = level.branch == nullptr
              ? node.subtree_end
              : trie.NextChild(*level.branch, NextBytes(level), node.byte + uint32_t{1});
      continue;
    }
    if (node.has_tokens) Allow(trie.TokensAt(i));
    Walk::Level& below = walk_.levels[node.depth + size_t{1}];
    below = {.steps = automaton_.StepsFrom(next), .branch = nullptr};
    if (!node.is_wide) {
      ++i;
      continue;
    }
    const size_t branch = trie.BranchOf(i);
    const Answer answer = MayAllFollow(slice.below[branch], next);
    if (answer == Answer::kStopped) return false;
    if (answer == Answer::kYes) {
      Allow(trie.TokensUnder(i));
      i = node.subtree_end;
      continue;
    }
    below.branch = &trie.branches()[branch];
    i = trie.NextChild(*below.branch, NextBytes(below), 0);
  }
  return true;
}

}  // namespace specd::grammar
