// Draft holds the tokens that a drafter proposes for one sequence in one round, as the nodes of a
// tree.
//
// A node is one draft token. The parent of a node is an earlier node, or the root, which represents
// the kept tokens. A draft without parents is a chain: node i follows node i - 1. A place is a
// position at which a token follows: place 0 follows the root, place i + 1 follows node i. A draft
// of n nodes therefore has n + 1 places, with one target row and one mask row each. Plain data and
// pure functions: a Draft owns nothing, and its arrays outlive the round.
//
//   place 0 --node 0--> place 1 --node 1--> place 2      a chain: parents == nullptr
//        \--node 2--> place 3                            a tree: parents = {-1, 0, -1}
#pragma once

#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// How a draft token was chosen (CONTRACT §2). A token that was drawn from a distribution must bring
// the draft row. If the engine calls the token kOneHot instead, the result is still lossless, but
// fewer tokens are accepted. kSampled: drawn from the row. kSampledRest: drawn from the row without
// the ids of its kOneHot siblings and of its kSampledRest siblings with a lower index.
enum class DraftKind : uint8_t { kOneHot = 0, kSampled = 1, kSampledRest = 2 };

// The most nodes of a draft. A set of nodes then fits one word.
inline constexpr int32_t kNodesMax = 64;

// The parent of a node that follows the kept tokens.
inline constexpr int32_t kRoot = -1;

struct Draft {
  int32_t num_nodes = 0;
  const TokenId* tokens = nullptr;
  const int32_t* parents = nullptr;       // an earlier node or kRoot; null: a chain
  const DraftKind* kinds = nullptr;       // null: all kOneHot
  const uint32_t* target_rows = nullptr;  // one for each place
  const uint32_t* draft_rows = nullptr;   // one for each node, read if the node was drawn
  // The side channel: a drawn token i has the proposal d(tokens[i]) = draft_weights[i] /
  // draft_masses[i]. A draft row is then read only where a residual is needed. If both are null,
  // rows are read.
  const float* draft_weights = nullptr;
  const double* draft_masses = nullptr;
  // For greedy only: the target's argmax id at each place, instead of rows.
  const TokenId* target_argmax = nullptr;
};

// Bit i represents node i.
using NodeSet = uint64_t;

SPECD_INLINE constexpr bool Holds(NodeSet nodes, int32_t node) { return (nodes >> node & 1) != 0; }

SPECD_INLINE int32_t NumNodes(NodeSet nodes) {
#if defined(__CUDA_ARCH__)
  return __popcll(nodes);
#else
  return __builtin_popcountll(nodes);
#endif
}

SPECD_INLINE int32_t ParentOf(const Draft& draft, int32_t node) {
  return draft.parents == nullptr ? node - 1 : draft.parents[node];
}

SPECD_INLINE DraftKind KindOf(const Draft& draft, int32_t node) {
  return draft.kinds == nullptr ? DraftKind::kOneHot : draft.kinds[node];
}
SPECD_INLINE bool IsDrawn(const Draft& draft, int32_t node) {
  return KindOf(draft, node) != DraftKind::kOneHot;
}
// Looks at all kinds, those after a kNoToken too: how a token would have been drawn does not say
// which token was drawn.
SPECD_INLINE bool AnyDrawn(const Draft& draft) {
  for (int32_t node = 0; node < draft.num_nodes; ++node) {
    if (IsDrawn(draft, node)) return true;
  }
  return false;
}

SPECD_INLINE constexpr int32_t PlaceAfter(int32_t node) { return node + 1; }
// The node that a place follows; kRoot for place 0.
SPECD_INLINE constexpr int32_t NodeBefore(int32_t place) { return place - 1; }
// The place at which a node is proposed.
SPECD_INLINE int32_t PlaceOf(const Draft& draft, int32_t node) {
  return PlaceAfter(ParentOf(draft, node));
}

// The nodes from the root to a place.
SPECD_INLINE NodeSet AncestorsOf(const Draft& draft, int32_t place) {
  NodeSet path = 0;
  for (int32_t node = NodeBefore(place); node != kRoot; node = ParentOf(draft, node)) {
    path |= NodeSet{1} << node;
  }
  return path;
}

// The number of nodes between the root and a place.
SPECD_INLINE int32_t DepthOf(const Draft& draft, int32_t place) {
  if (draft.parents == nullptr) return place;
  int32_t depth = 0;
  for (int32_t node = NodeBefore(place); node != kRoot; node = draft.parents[node]) ++depth;
  return depth;
}

// The next child of a place in the order of verification (CONTRACT §5): first the drawn ones, then
// the kOneHot ones, both by index. `after`: the child before, kRoot: none. kRoot: no child is left.
SPECD_INLINE int32_t NextChild(const Draft& draft, int32_t place, int32_t after) {
  int32_t node = after + 1;
  bool is_drawn = after == kRoot || IsDrawn(draft, after);
  for (;; is_drawn = false, node = 0) {
    for (; node < draft.num_nodes; ++node) {
      if (PlaceOf(draft, node) == place && IsDrawn(draft, node) == is_drawn) return node;
    }
    if (!is_drawn) return kRoot;
  }
}

// The nodes that follow a place, directly or through other nodes. These nodes are dead once the
// draft is known to end at that place.
SPECD_INLINE NodeSet NodesBehind(const Draft& draft, int32_t place) {
  if (draft.parents == nullptr) return place < kNodesMax ? ~NodeSet{0} << place : 0;
  NodeSet behind = 0;
  for (int32_t node = 0; node < draft.num_nodes; ++node) {
    const int32_t parent = draft.parents[node];
    if (parent == NodeBefore(place) || (parent != kRoot && Holds(behind, parent))) {
      behind |= NodeSet{1} << node;
    }
  }
  return behind;
}

}  // namespace specd
