// TokenTrie holds the bytes of a vocabulary's tokens as a tree for walks along an automaton.
//
// Nodes lie in depth-first order, so that a walk is a loop: where the automaton has no way on, the
// walk jumps to subtree_end. A node costs 8 bytes. Several ids may spell the same bytes. Special
// tokens, holes and ids past the logits are not in it. Immutable; any number of threads may read.
//
//   const TokenTrie trie = TokenTrie::Build(vocabulary, vocab_size);
//   std::vector<uint32_t> states(trie.depth_max() + 1);       // states[0] = the state of the text
//   for (uint32_t node = 0; node < trie.nodes().size();) {
//     const TokenTrie::Node& at = trie.nodes()[node];
//     const uint32_t state = dfa.Step(states[at.depth], at.byte);
//     if (state == kDead) { node = at.subtree_end; continue; }
//     states[at.depth + 1] = state;
//     for (const TokenId id : trie.TokensAt(node)) Allow(id);
//     ++node;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd::grammar {

class TokenTrie {
 public:
  // The byte that leads to the node. The root has no node.
  struct Node {
    uint32_t subtree_end = 0;  // the first node after this one that is not below it
    uint16_t depth = 0;        // the number of bytes before this one
    uint8_t byte = 0;
    bool has_tokens = false;  // a token ends here
  };
  static_assert(sizeof(Node) == 8, "eight nodes to a cache line");

  TokenTrie() = default;

  // The ids below `vocab_size`, which is the width of the logits: it may be less or more than
  // vocabulary.size().
  static TokenTrie Build(const Vocabulary& vocabulary, int32_t vocab_size);
  // One trie for each part, of the tokens for which part_of gives its number. A number past the
  // parts leaves the token out. The time is that of one pass.
  std::vector<TokenTrie> Split(size_t num_parts, absl::FunctionRef<size_t(TokenId)> part_of) const;

  std::span<const Node> nodes() const { return nodes_; }
  // The ids that end at a node, in ascending order.
  std::span<const TokenId> TokensAt(uint32_t node) const {
    if (!nodes_[node].has_tokens) return {};
    const uint32_t text = NumTextsBefore(node);
    return TokensOf(text, text + 1);
  }
  // The ids that end at a node or below it.
  std::span<const TokenId> TokensUnder(uint32_t node) const {
    return TokensOf(NumTextsBefore(node), NumTextsBefore(nodes_[node].subtree_end));
  }
  // Every id, in the order of its bytes.
  std::span<const TokenId> tokens() const { return tokens_; }

  // The length of the longest token.
  size_t depth_max() const { return depth_max_; }
  int32_t vocab_size() const { return vocab_size_; }
  size_t size_bytes() const;

 private:
  class Builder;

  // A bit for each of 64 nodes that has tokens, and the number of such nodes before them.
  struct Rank {
    uint64_t bits = 0;
    uint32_t num_before = 0;
  };

  // The number of different texts (bytes of tokens) that end before a node. REQUIRES: node <=
  // nodes_.size().
  uint32_t NumTextsBefore(uint32_t node) const;
  std::span<const TokenId> TokensOf(uint32_t first_text, uint32_t text_end) const {
    return std::span(tokens_).subspan(text_begins_[first_text],
                                      text_begins_[text_end] - text_begins_[first_text]);
  }

  std::vector<Node> nodes_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> text_begins_ = {0};  // into tokens_, by text, and the end
  std::vector<TokenId> tokens_;
  size_t depth_max_ = 0;
  int32_t vocab_size_ = 0;
};

}  // namespace specd::grammar
