#include "speculative/grammar/mask_builder.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace specd::grammar {
namespace {

// Pairs of states that a containment may look at. A slice has some tens of states, and a state of a
// grammar that counts characters leads to another for each.
constexpr size_t kPairsMax = 2048;

}  // namespace

std::vector<uint32_t> MaskBuilder::Build(LazyAutomaton* automaton, StateId state) const {
  std::vector<uint32_t> words((static_cast<size_t>(vocab_size_) + 31) / 32);
  for (const VocabularySlice& slice : slices_) {
    if (slice.language.has_value() && Contains(slice, automaton, state)) {
      for (size_t i = 0; i < words.size(); ++i) words[i] |= slice.mask[i];
    } else {
      Walk(slice.tokens, automaton, state, &words);
    }
  }
  return words;
}

bool MaskBuilder::Contains(const VocabularySlice& slice, LazyAutomaton* automaton, StateId state) {
  using Pair = std::pair<uint32_t, StateId>;
  const Network& network = automaton->network();
  std::vector<Pair> open = {{0, state}};
  absl::flat_hash_set<Pair> seen = {open[0]};
  while (!open.empty()) {
    const auto [in_slice, in_grammar] = open.back();
    open.pop_back();
    for (const ByteDfa::Edge& edge : slice.language->states[in_slice].edges) {
      // Bytes of one class lead to one state.
      int last_class = -1;
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        const auto value = static_cast<uint8_t>(byte);
        if (network.byte_class(value) == last_class) continue;
        last_class = network.byte_class(value);
        const StateId next = automaton->Step(in_grammar, value);
        if (!LazyAutomaton::IsAlive(next)) return false;
        if (seen.insert({edge.target, next}).second) open.emplace_back(edge.target, next);
      }
    }
    if (seen.size() > kPairsMax) return false;
  }
  return true;
}

void MaskBuilder::Walk(const TokenTrie& trie, LazyAutomaton* automaton, StateId state,
                       std::vector<uint32_t>* words) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<StateId> states(trie.depth_max() + 1);
  states[0] = state;
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = automaton->Step(states[node.depth], node.byte);
    if (!LazyAutomaton::IsAlive(next)) {
      i = node.subtree_end;
      continue;
    }
    states[node.depth + size_t{1}] = next;
    if (node.has_tokens) {
      for (const TokenId id : trie.TokensAt(i)) {
        (*words)[static_cast<size_t>(id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(id) % 32);
      }
    }
    ++i;
  }
}

}  // namespace specd::grammar
