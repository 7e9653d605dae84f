// TreeRows describes the trees that drafters leave at slots, and MakeSlotTree makes the parents of
// a draft from them for the processor of a round, or for the host.
//
// A tree comes in one of two forms: the parent of each node, or SGLang's lists of children
// (retrieve_next_token and retrieve_next_sibling), where the kept tokens are node 0 and node i of
// the draft is node i + 1. Nobody has checked what lies there. Each number is read once, into
// memory of the round, and never used as an index before it was checked. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/core/draft.h"
#include "kernels/core/types.h"

namespace specd {

// One row of nodes for each slot.
struct NodeRows {
  const void* data = nullptr;  // null: not bound
  bool is_wide = false;        // the elements are int64; false: int32
  int64_t row_stride = 0;      // in elements
  MemorySpace space = MemorySpace::kHost;
};

struct TreeRows {
  NodeRows parents;       // node i follows node parents[i], an earlier one, or kRoot
  NodeRows next_child;    // by SGLang's node: its first child, or -1
  NodeRows next_sibling;  // by SGLang's node: the next child of its parent, or -1

  SPECD_INLINE constexpr bool has_lists() const { return parents.data == nullptr; }
  SPECD_INLINE constexpr bool is_bound() const {
    return parents.data != nullptr || (next_child.data != nullptr && next_sibling.data != nullptr);
  }
  SPECD_INLINE constexpr MemorySpace space() const {
    return has_lists() ? next_child.space : parents.space;
  }
};

enum class TreeFault : uint32_t {
  kNone = 0,
  kParents = 1,  // a parent is neither kRoot nor an earlier node, or a node has two places
  kPath = 2,     // a path has more nodes than a round may accept
  kKinds = 3,    // drawn siblings are of two kinds
};

struct SlotTree {
  TreeFault fault = TreeFault::kNone;
  NodeSet unlisted = 0;  // nodes that are in no list: no draft tokens
};

// The numbers that are read of a slot: a parent for each node, or two lists.
SPECD_INLINE constexpr int32_t NumTreeNumbers(bool has_lists, int32_t num_nodes) {
  return has_lists ? 2 * (num_nodes + 1) : num_nodes;
}
SPECD_INLINE constexpr int32_t TreeNumbersMax(int32_t max_draft) {
  return NumTreeNumbers(true, max_draft);
}

// A number outside int32 is as wrong as any other that is no node.
inline constexpr int32_t kNoNode = -2;

SPECD_INLINE int32_t ReadNode(const NodeRows& rows, uint32_t slot, int32_t index) {
  const int64_t at = slot * rows.row_stride + index;
  if (!rows.is_wide) return static_cast<const volatile int32_t*>(rows.data)[at];
  const int64_t node = static_cast<const volatile int64_t*>(rows.data)[at];
  return node < INT32_MIN || node > INT32_MAX ? kNoNode : static_cast<int32_t>(node);
}

// Number `index` of NumTreeNumbers.
SPECD_INLINE int32_t ReadTreeNumber(const TreeRows& rows, uint32_t slot, int32_t num_nodes,
                                    int32_t index) {
  if (!rows.has_lists()) return ReadNode(rows.parents, slot, index);
  if (index <= num_nodes) return ReadNode(rows.next_child, slot, index);
  return ReadNode(rows.next_sibling, slot, index - num_nodes - 1);
}

namespace internal {

SPECD_INLINE SlotTree TreeOfParents(const int32_t* numbers, int32_t num_nodes, int32_t* parents) {
  for (int32_t node = 0; node < num_nodes; ++node) {
    if (numbers[node] < kRoot || numbers[node] >= node) return {.fault = TreeFault::kParents};
    parents[node] = numbers[node];
  }
  return {};
}

// A place comes after the node before it, so every place is reached before its lists are walked.
// Each step of a walk reaches a further node, or ends in a fault.
SPECD_INLINE SlotTree TreeOfLists(const int32_t* numbers, int32_t num_nodes, int32_t* parents) {
  const int32_t* const next_child = numbers;
  const int32_t* const next_sibling = numbers + num_nodes + 1;
  NodeSet listed = 0;
  for (int32_t place = 0; place <= num_nodes; ++place) {
    if (place > 0 && !Holds(listed, NodeBefore(place))) continue;
    int32_t child = next_child[place];
    while (child != -1) {
      if (child <= place || child > num_nodes || Holds(listed, child - 1)) {
        return {.fault = TreeFault::kParents};
      }
      listed |= NodeSet{1} << (child - 1);
      parents[child - 1] = NodeBefore(place);
      child = next_sibling[child];
    }
  }
  SlotTree tree;
  for (int32_t node = 0; node < num_nodes; ++node) {
    if (Holds(listed, node)) continue;
    parents[node] = kRoot;
    tree.unlisted |= NodeSet{1} << node;
  }
  return tree;
}

}  // namespace internal

// Makes `parents` of the numbers of a slot, in the order of ReadTreeNumber. `draft` has the nodes
// and their kinds. The numbers are lost. REQUIRES: num_nodes <= kNodesMax; run by one thread.
SPECD_HD inline SlotTree MakeSlotTree(const Draft& draft, bool has_lists, int32_t max_path,
                                      int32_t* numbers, int32_t* parents) {
  const int32_t num_nodes = draft.num_nodes;
  SlotTree tree = has_lists ? internal::TreeOfLists(numbers, num_nodes, parents)
                            : internal::TreeOfParents(numbers, num_nodes, parents);
  if (tree.fault != TreeFault::kNone) return tree;
  int32_t* const depths = numbers;  // read before they are overwritten
  NodeSet with_sampled = 0;         // places
  NodeSet with_rest = 0;
  for (int32_t node = 0; node < num_nodes; ++node) {
    const int32_t parent = parents[node];
    depths[node] = parent == kRoot ? 1 : depths[parent] + 1;
    if (depths[node] > max_path) return {.fault = TreeFault::kPath};
    if (Holds(tree.unlisted, node)) continue;
    const NodeSet place = NodeSet{1} << PlaceAfter(parent);
    const DraftKind kind = KindOf(draft, node);
    if (kind == DraftKind::kSampled) with_sampled |= place;
    if (kind == DraftKind::kSampledRest) with_rest |= place;
    if ((with_sampled & with_rest) != 0) return {.fault = TreeFault::kKinds};
  }
  return tree;
}

}  // namespace specd
