// NgramModel is the toy engine's language model over token ids: the target model has long contexts,
// the drafter short ones.
//
// It writes full logits rows, as a real model's forward pass does.
//
//   NgramModel target({.order = 5, .vocab_size = 2048, .end_token = 0}, passages);
//   target.FillRow(prompt_and_kept_tokens, row);  // 2,048 log-probabilities
//
// The model uses interpolated absolute discounting (Ney, Essen and Kneser 1994). In the context h
// the token w has
//
//   p(w | h) = max(count(h w) - d, 0) / count(h) + d * types(h) / count(h) * p(w | h')
//
// where types(h) is the number of different tokens seen after h, and h' is h without its oldest
// token. The shortest context, none, mixes in the uniform distribution, so every id has a finite
// logit. Rows sum to 1 up to rounding. A row depends only on the last order - 1 tokens of the
// context: equal prefixes give equal rows, bit for bit.
//
// Immutable once made; may be used by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace specd::toy {

struct NgramOptions {
  int order = 5;           // tokens of an n-gram, 1 or more: the context has one less
  int32_t vocab_size = 0;  // columns of a row
  int32_t end_token = 0;   // learned after every passage
  // The number d above. It is small, so that long contexts decide and the text reads well. The text
  // therefore often follows its documents.
  double discount = 0.2;
};

class NgramModel {
 public:
  // Learns from the passages; ids must lie in 0 .. vocab_size - 1.
  NgramModel(const NgramOptions& options, const std::vector<std::vector<int32_t>>& passages);

  // Writes vocab_size log-probabilities of the token after context.
  void FillRow(std::span<const int32_t> context, float* row) const;

 private:
  struct Successor {
    int32_t token;
    uint32_t count;
  };

  // A context. Its children are the contexts that are one token longer at the old end.
  struct Node {
    uint32_t count = 0;
    std::vector<Successor> successors;  // ascending by token
  };

  uint32_t ChildOf(uint32_t node, int32_t token) const;
  uint32_t AddChild(uint32_t node, int32_t token);
  void Count(std::span<const int32_t> passage);
  void MakeBase();

  NgramOptions options_;
  std::vector<Node> nodes_;                           // [0] is the context without a token
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // by node << 32 | older token
  std::vector<double> base_;                          // p(w) without a context, by token
  std::vector<float> log_base_;
};

}  // namespace specd::toy
