#include "speculative/grammar/mask_builder.h"

#include <span>

#include "speculative/grammar/budget.h"
#include "speculative/grammar/grammar_rules.h"
#include "speculative/grammar/id_table.h"

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

StateId MaskBuilder::Build(LazyAutomaton* automaton, StateId state,
                           std::vector<uint32_t>* words) const {
  const Budget budget({.units = kUnitsMax});
  words->assign((static_cast<size_t>(vocab_size_) + 31) / 32, 0);
  const auto add = [&](const std::vector<uint32_t>& mask) {
    for (size_t i = 0; i < words->size(); ++i) (*words)[i] |= mask[i];
  };
  StateId limit = LazyAutomaton::kDead;
  std::vector<bool> is_done(slices_.size());
  bool counts = false;
  for (const SliceCover& cover : covers_) {
    if (!counts) {
      const SliceCover::Part& all = cover.any_length;
      const Answer answer = Contains(all.language, automaton, state, kCoverPairsMax, &limit);
      if (answer == Answer::kLimit) return limit;
      if (answer == Answer::kNo) continue;
      if (answer == Answer::kYes) {
        add(all.mask);
        is_done = all.slices;
        break;
      }
      // A grammar that counts characters counts those of a smaller language too. Most tokens are
      // too short for that.
      counts = true;
    }
    const SliceCover::Part& part = cover.short_texts;
    bool is_needed = false;
    for (size_t i = 0; i < slices_.size(); ++i) is_needed |= part.slices[i] && !is_done[i];
    if (!is_needed) continue;
    const Answer answer = Contains(part.language, automaton, state, kPairsMax, &limit);
    if (answer == Answer::kLimit) return limit;
    if (answer != Answer::kYes) continue;
    add(part.mask);
    for (size_t i = 0; i < slices_.size(); ++i) is_done[i] = is_done[i] || part.slices[i];
  }
  const ByteSet& next_bytes = automaton->NextBytes(state);
  for (size_t i = 0; i < slices_.size(); ++i) {
    const VocabularySlice& slice = slices_[i];
    if (is_done[i] || (slice.first_bytes & next_bytes).IsEmpty()) continue;
    const Answer answer = slice.language.has_value() && !IsWalkedSooner(slice)
                              ? Contains(*slice.language, automaton, state, kPairsMax, &limit)
                              : Answer::kUnknown;
    if (answer == Answer::kYes) {
      add(slice.mask);
    } else if (answer != Answer::kLimit) {
      limit = Walk(slice.tokens, automaton, state, words);
    }
    if (limit != LazyAutomaton::kDead) return limit;
  }
  return LazyAutomaton::kDead;
}

MaskBuilder::Answer MaskBuilder::Contains(const ByteDfa& language, LazyAutomaton* automaton,
                                          StateId state, size_t pairs_max, StateId* limit) {
  struct Pair {
    uint32_t in_language = 0;
    StateId in_grammar = 0;
  };
  const Network& network = automaton->network();
  std::vector<Pair> pairs;
  IdTable seen;  // places in pairs
  const auto visit = [&](uint32_t in_language, StateId in_grammar) {
    const auto hash = static_cast<uint32_t>(IdTable::Mix(uint64_t{in_language} << 32 | in_grammar));
    const auto is_pair = [&](uint32_t i) {
      return pairs[i].in_language == in_language && pairs[i].in_grammar == in_grammar;
    };
    if (seen.Find(hash, is_pair) != IdTable::kNone) return;
    seen.Reserve();
    pairs.push_back({in_language, in_grammar});
    seen.Insert(hash, static_cast<uint32_t>(pairs.size() - 1));
  };
  visit(0, state);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [in_language, in_grammar] = pairs[i];
    const LazyAutomaton::Steps steps = automaton->StepsFrom(in_grammar);
    size_t num_steps = 0;
    for (const ByteDfa::Edge& edge : language.states[in_language].edges) {
      // Bytes of one class lead to one state.
      int last_class = -1;
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        const auto value = static_cast<uint8_t>(byte);
        if (network.byte_class(value) == last_class) continue;
        last_class = network.byte_class(value);
        ++num_steps;
        const StateId next = automaton->Step(steps, value);
        if (next == LazyAutomaton::kDead) return Answer::kNo;
        // No token may have this text, so the tokens decide.
        if (next == LazyAutomaton::kTooManyWays) return Answer::kUnknown;
        if (LazyAutomaton::IsLimit(next)) {
          *limit = next;
          return Answer::kLimit;
        }
        visit(edge.target, next);
      }
    }
    if (!Budget::Spend(num_steps)) {
      *limit = LazyAutomaton::kTooMuchWork;
      return Answer::kLimit;
    }
    if (pairs.size() > pairs_max) return Answer::kUnknown;
  }
  return Answer::kYes;
}

StateId MaskBuilder::Walk(const TokenTrie& trie, LazyAutomaton* automaton, StateId state,
                          std::vector<uint32_t>* words) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<LazyAutomaton::Steps> steps(trie.depth_max() + 1);
  steps[0] = automaton->StepsFrom(state);
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = automaton->Step(steps[node.depth], node.byte);
    if (!LazyAutomaton::IsAlive(next)) {
      if (next != LazyAutomaton::kDead) [[unlikely]]
        return next;
      i = node.subtree_end;
      continue;
    }
    steps[node.depth + size_t{1}] = automaton->StepsFrom(next);
    if (node.has_tokens) {
      for (const TokenId id : trie.TokensAt(i)) {
        (*words)[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
      }
    }
    ++i;
  }
  return LazyAutomaton::kDead;
}

}  // namespace specd::grammar
