// TokenTrie holds the bytes of a vocabulary's tokens as a tree for walks along an automaton.
//
// Nodes lie in depth-first order, so that a walk is a loop: where the automaton has no way on, the
// walk jumps to subtree_end. A node costs 8 bytes. Where a node has many children, a Branch finds
// the next one of some bytes, so that a walk need not look at the others. Several ids may spell the
// same bytes. Special tokens, holes and ids past the logits are not in it. Immutable; any number of
// threads may read.
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
#include "speculative/grammar/base/byte_set.h"

namespace specd::grammar {

class TokenTrie {
 public:
  // The byte that leads to the node. The root has no node.
  struct Node {
    uint32_t subtree_end = 0;  // the first node after this one that is not below it
    uint16_t depth = 0;        // the number of bytes before this one
    uint8_t byte = 0;
    bool has_tokens : 1 = false;  // a token ends here
    bool is_wide : 1 = false;     // it has a Branch
  };
  static_assert(sizeof(Node) == 8, "eight nodes to a cache line");

  // The children of a node.
  struct Branch {
    ByteSet bytes;  // that lead to them
    uint32_t first_child = 0;
    uint32_t end = 0;  // behind the last one's subtree
  };

  TokenTrie() = default;

  // The ids below `vocab_size`, which is the width of the logits: it may be less or more than
  // vocabulary.size().
  static TokenTrie Build(const Vocabulary& vocabulary, int32_t vocab_size);
  // One trie for each part, of the tokens for which part_of gives its number. A number past the
  // parts leaves the token out. The time is that of one pass.
  std::vector<TokenTrie> Split(size_t num_parts, absl::FunctionRef<size_t(TokenId)> part_of) const;

  std::span<const Node> nodes() const { return nodes_; }
  // That of the root is the first one; wide nodes have theirs in the order of the nodes.
  std::span<const Branch> branches() const { return branches_; }
  // REQUIRES: the node is wide.
  size_t BranchOf(uint32_t node) const { return wide_.Before(node) + size_t{1}; }
  // The first child of a byte in `bytes` from `first_byte` on, or the branch's end.
  uint32_t NextChild(const Branch& branch, const ByteSet& bytes, uint32_t first_byte) const {
    const int byte = (branch.bytes & bytes).FirstFrom(first_byte);
    if (byte < 0) return branch.end;
    return children_[branch.first_child + branch.bytes.SizeBelow(static_cast<uint8_t>(byte))];
  }
  // The ids that end at a node, in ascending order.
  std::span<const TokenId> TokensAt(uint32_t node) const {
    if (!nodes_[node].has_tokens) return {};
    const uint32_t text = texts_.Before(node);
    return TokensOf(text, text + 1);
  }
  // The ids that end at a node or below it.
  std::span<const TokenId> TokensUnder(uint32_t node) const {
    return TokensOf(texts_.Before(node), texts_.Before(nodes_[node].subtree_end));
  }
  // Every id, in the order of its bytes.
  std::span<const TokenId> tokens() const { return tokens_; }

  // The length of the longest token.
  size_t depth_max() const { return depth_max_; }
  int32_t vocab_size() const { return vocab_size_; }
  size_t size_bytes() const;

 private:
  class Builder;

  // Some of the nodes, and how many of them are before a node.
  class Ranks {
   public:
    // `has` says which of the nodes.
    Ranks() = default;
    Ranks(size_t num_nodes, absl::FunctionRef<bool(uint32_t)> has);

    // REQUIRES: node <= num_nodes.
    uint32_t Before(uint32_t node) const {
      const Word& word = words_[node / 64];
      return word.num_before + CountBits(word.bits & ((uint64_t{1} << node % 64) - 1));
    }
    size_t size_bytes() const { return words_.size() * sizeof(Word); }

   private:
    struct Word {
      uint64_t bits = 0;
      uint32_t num_before = 0;
    };
    std::vector<Word> words_;
  };

  std::span<const TokenId> TokensOf(uint32_t first_text, uint32_t text_end) const {
    return std::span(tokens_).subspan(text_begins_[first_text],
                                      text_begins_[text_end] - text_begins_[first_text]);
  }

  std::vector<Node> nodes_;
  Ranks texts_;  // nodes that have tokens: the different texts, by number
  Ranks wide_;
  std::vector<Branch> branches_ = {{}};      // of the root, and of wide nodes in their order
  std::vector<uint32_t> children_;           // of branches
  std::vector<uint32_t> text_begins_ = {0};  // into tokens_, by text, and the end
  std::vector<TokenId> tokens_;
  size_t depth_max_ = 0;
  int32_t vocab_size_ = 0;
};

}  // namespace specd::grammar
