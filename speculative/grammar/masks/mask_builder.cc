#include "speculative/grammar/masks/mask_builder.h"

#include <algorithm>
#include <span>

#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {
namespace {

// Pairs of states that a containment may look at. A slice has some tens of states, and a state of a
// grammar that counts characters leads to another for each.
constexpr size_t kPairsMax = 2048;
// A language of any length has few states, and so has what allows all of it.
constexpr size_t kCoverPairsMax = 64;
// Estimate: a pair takes as long as this many nodes of a walk.
constexpr size_t kNodesPerPair = 8;

// Whether a walk over the tokens takes less time than a look at their language. Without a bound on
// the number of characters, a look goes on to the end of what the grammar counts.
bool IsWalkedSooner(const VocabularySlice& slice) {
  const size_t num_pairs =
      slice.characters_max == kUnbounded ? kPairsMax : slice.language->states.size();
  return slice.tokens.nodes().size() < kNodesPerPair * num_pairs;
}

}  // namespace

MaskWork::MaskWork(const MaskBuilder* builder, LazyAutomaton* automaton, StateId state)
    : builder_(*builder),
      automaton_(*automaton),
      state_(state),
      words_((static_cast<size_t>(builder->vocab_size_) + 31) / 32),
      is_done_(builder->slices_.size()) {}

bool MaskWork::Advance(WorkSlice* slice) {
  const Budget budget({.units = MaskBuilder::kUnitsMax - num_units_});
  budget_ = &budget;
  num_walked_ = 0;
  pause_units_ = std::max<uint64_t>(slice->units, 1);
  bool goes_on = true;
  while (goes_on && cover_ < builder_.covers_.size()) goes_on = DoCover();
  while (goes_on && slice_ < builder_.slices_.size()) goes_on = DoSlice();
  num_units_ = std::min(num_units_ + budget.units(), MaskBuilder::kUnitsMax);
  slice->units -= std::min(slice->units, Taken());
  return goes_on || limit_ != LazyAutomaton::kDead;
}

void MaskWork::Add(const std::vector<uint32_t>& mask, const std::vector<bool>& slices) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= mask[i];
  for (size_t i = 0; i < slices.size(); ++i) is_done_[i] = is_done_[i] || slices[i];
}

bool MaskWork::IsNeeded(const SliceCover::Part& part) const {
  for (size_t i = 0; i < is_done_.size(); ++i) {
    if (part.slices[i] && !is_done_[i]) return true;
  }
  return false;
}

bool MaskWork::DoCover() {
  const SliceCover& cover = builder_.covers_[cover_];
  if (!counts_) {
    const SliceCover::Part& all = cover.any_length;
    switch (Ask(all.language, kCoverPairsMax)) {
      case Answer::kStopped:
        return false;
      case Answer::kYes:
        Add(all.mask, all.slices);
        cover_ = builder_.covers_.size();
        return true;
      case Answer::kNo:
        ++cover_;
        return true;
      case Answer::kUnknown:
        counts_ = true;
    }
  }
  const SliceCover::Part& part = cover.short_texts;
  if (IsNeeded(part)) {
    const Answer answer = Ask(part.language, kPairsMax);
    if (answer == Answer::kStopped) return false;
    if (answer == Answer::kYes) Add(part.mask, part.slices);
  }
  ++cover_;
  return true;
}

bool MaskWork::DoSlice() {
  const VocabularySlice& slice = builder_.slices_[slice_];
  const bool may_follow = !(slice.first_bytes & automaton_.NextBytes(state_)).IsEmpty();
  if (!walk_.has_value() && may_follow && !is_done_[slice_]) {
    const Answer answer = slice.language.has_value() && !IsWalkedSooner(slice)
                              ? Ask(*slice.language, kPairsMax)
                              : Answer::kUnknown;
    if (answer == Answer::kStopped) return false;
    if (answer == Answer::kYes) {
      Add(slice.mask, {});
    } else {
      Walk walk;
      walk.steps.resize(slice.tokens.depth_max() + 1);
      walk.steps[0] = automaton_.StepsFrom(state_);
      walk_ = std::move(walk);
    }
  }
  if (walk_.has_value()) {
    if (!DoWalk(slice.tokens)) return false;
    walk_.reset();
  }
  ++slice_;
  return true;
}

MaskWork::Answer MaskWork::Ask(const ByteDfa& language, size_t pairs_max) {
  if (!look_.has_value()) look_.emplace(&language, state_);
  const Answer answer = look_->Advance(pairs_max, this);
  if (answer != Answer::kStopped) look_.reset();
  return answer;
}

void MaskWork::Look::Visit(uint32_t in_language, StateId in_grammar) {
  const auto hash = static_cast<uint32_t>(IdTable::Mix(uint64_t{in_language} << 32 | in_grammar));
  const auto is_pair = [&](uint32_t i) {
    return pairs_[i].in_language == in_language && pairs_[i].in_grammar == in_grammar;
  };
  if (seen_.Find(hash, is_pair) != IdTable::kNone) return;
  seen_.Reserve();
  pairs_.push_back({in_language, in_grammar});
  seen_.Insert(hash, static_cast<uint32_t>(pairs_.size() - 1));
}

MaskWork::Answer MaskWork::Look::Advance(size_t pairs_max, MaskWork* work) {
  while (num_done_ < pairs_.size()) {
    if (!work->MayGoOn()) return Answer::kStopped;
    // Steps that the pair has taken before are taken again in no time.
    const Answer answer = StepPair(pairs_[num_done_], work);
    if (answer != Answer::kYes) return answer;
    ++num_done_;
    if (pairs_.size() > pairs_max) return Answer::kUnknown;
  }
  return Answer::kYes;
}

MaskWork::Answer MaskWork::Look::StepPair(Pair pair, MaskWork* work) {
  LazyAutomaton& automaton = work->automaton_;
  const Network& network = automaton.network();
  const LazyAutomaton::Steps steps = automaton.StepsFrom(pair.in_grammar);
  size_t num_steps = 0;
  for (const ByteDfa::Edge& edge : language_.states[pair.in_language].edges) {
    // Bytes of one class lead to one state.
    int last_class = -1;
    for (int byte = edge.first; byte <= edge.last; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      if (network.byte_class(value) == last_class) continue;
      last_class = network.byte_class(value);
      ++num_steps;
      const StateId next = automaton.Step(steps, value);
      if (next == LazyAutomaton::kDead) return Answer::kNo;
      // No token may have this text, so the tokens decide.
      if (next == LazyAutomaton::kTooManyWays) return Answer::kUnknown;
      if (LazyAutomaton::IsLimit(next)) {
        work->limit_ = next;
        return Answer::kStopped;
      }
      Visit(edge.target, next);
    }
  }
  if (Budget::Spend(num_steps)) return Answer::kYes;
  work->limit_ = LazyAutomaton::kTooMuchWork;
  return Answer::kStopped;
}

bool MaskWork::DoWalk(const TokenTrie& trie) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<LazyAutomaton::Steps>& steps = walk_->steps;
  for (uint32_t& i = walk_->node; i < nodes.size();) {
    if (!MayGoOn()) [[unlikely]]
      return false;
    ++num_walked_;
    const TokenTrie::Node& node = nodes[i];
    const StateId next = automaton_.Step(steps[node.depth], node.byte);
    if (!LazyAutomaton::IsAlive(next)) {
      if (next != LazyAutomaton::kDead) [[unlikely]] {
        limit_ = next;
        return false;
      }
      i = node.subtree_end;
      continue;
    }
    steps[node.depth + size_t{1}] = automaton_.StepsFrom(next);
    if (node.has_tokens) {
      for (const TokenId id : trie.TokensAt(i)) {
        words_[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
      }
    }
    ++i;
  }
  return true;
}

}  // namespace specd::grammar
