#include "speculative/grammar/mask_builder.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace specd::grammar {
namespace {

// Pairs of states that a containment may look at. A slice has some tens of states, and a state of a
// grammar that counts characters leads to another for each.
constexpr size_t kPairsMax = 2048;
// A language of any length has few states, and so has what allows all of it.
constexpr size_t kCoverPairsMax = 64;

}  // namespace

std::vector<uint32_t> MaskBuilder::Build(LazyAutomaton* automaton, StateId state) const {
  std::vector<uint32_t> words((static_cast<size_t>(vocab_size_) + 31) / 32);
  const auto add = [&](const std::vector<uint32_t>& mask) {
    for (size_t i = 0; i < words.size(); ++i) words[i] |= mask[i];
  };
  std::vector<bool> is_done(slices_.size());
  for (const SliceCover& cover : covers_) {
    const Answer answer = Contains(cover.language, automaton, state, kCoverPairsMax);
    if (answer == Answer::kNo) continue;
    if (answer == Answer::kYes) {
      add(cover.mask);
      is_done = cover.slices;
    }
    break;  // a grammar that counts characters counts those of a smaller language too
  }
  const ByteSet& next_bytes = automaton->NextBytes(state);
  for (size_t i = 0; i < slices_.size(); ++i) {
    const VocabularySlice& slice = slices_[i];
    if (is_done[i] || (slice.first_bytes & next_bytes).IsEmpty()) continue;
    if (slice.language.has_value() &&
        Contains(*slice.language, automaton, state, kPairsMax) == Answer::kYes) {
      add(slice.mask);
    } else {
      Walk(slice.tokens, automaton, state, &words);
    }
  }
  return words;
}

MaskBuilder::Answer MaskBuilder::Contains(const ByteDfa& language, LazyAutomaton* automaton,
                                          StateId state, size_t pairs_max) {
  using Pair = std::pair<uint32_t, StateId>;
  const Network& network = automaton->network();
  std::vector<Pair> open = {{0, state}};
  absl::flat_hash_set<Pair> seen = {open[0]};
  while (!open.empty()) {
    const auto [in_language, in_grammar] = open.back();
    open.pop_back();
    for (const ByteDfa::Edge& edge : language.states[in_language].edges) {
      // Bytes of one class lead to one state.
      int last_class = -1;
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        const auto value = static_cast<uint8_t>(byte);
        if (network.byte_class(value) == last_class) continue;
        last_class = network.byte_class(value);
        const StateId next = automaton->Step(in_grammar, value);
        if (!LazyAutomaton::IsAlive(next)) return Answer::kNo;
        if (seen.insert({edge.target, next}).second) open.emplace_back(edge.target, next);
      }
    }
    if (seen.size() > pairs_max) return Answer::kUnknown;
  }
  return Answer::kYes;
}

void MaskBuilder::Walk(const TokenTrie& trie, LazyAutomaton* automaton, StateId state,
                       std::vector<uint32_t>* words) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<LazyAutomaton::Steps> steps(trie.depth_max() + 1);
  steps[0] = automaton->StepsFrom(state);
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = automaton->Step(steps[node.depth], node.byte);
    if (!LazyAutomaton::IsAlive(next)) {
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
}

}  // namespace specd::grammar
