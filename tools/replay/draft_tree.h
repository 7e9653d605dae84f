// DraftTree reads a recorded draft as a tree: children, depths, and what became of each node.
//
// Use it for every task whose draft has parents, or whose method is one of trees; a chain is a tree
// whose places have one child each. The fates follow from the recorded path alone: CONTRACT §5 says
// in which order a method judges nodes. Constant; it refers to the task.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

enum class NodeFate : uint32_t {
  kAccepted = 0,
  kRejected = 1,
  kNotJudged = 2,
  kOutside = 3,  // its id, or one before it, lies outside the vocabulary
};

std::string_view NameOf(NodeFate fate);

class DraftTree {
 public:
  // REQUIRES: CheckTask passed, or nothing but IsTree and NumInside is called.
  DraftTree(const TraceTask& task, int32_t vocab_size);

  static bool IsTree(const TraceTask& task) {
    return !task.parents.empty() || task.method > VerifyMethod::kBlock;
  }

  int32_t num_nodes() const { return static_cast<int32_t>(task_.tokens.size()); }
  int32_t ParentOf(int32_t node) const;
  int32_t PlaceOf(int32_t node) const { return PlaceAfter(ParentOf(node)); }
  int32_t DepthOf(int32_t place) const;
  DraftKind KindOf(int32_t node) const;
  TokenId TokenOf(int32_t node) const { return task_.tokens[node]; }
  // The id of the node and those before it lie in the vocabulary.
  bool IsInside(int32_t node) const;
  uint32_t NumInside() const;

  // In the order in which a method judges them; without those outside the vocabulary.
  std::vector<int32_t> ChildrenOf(int32_t place) const;
  // The accepted nodes; those of a chain need no record.
  const std::vector<int32_t>& path() const { return path_; }
  // The length of the longest path that lies in the vocabulary.
  int32_t Depth() const;
  // Where the walk has come to at a depth. REQUIRES: depth <= num_accepted.
  int32_t PlaceAt(int32_t depth) const;
  int32_t LastPlace() const { return PlaceAt(task_.outcome.num_accepted); }
  // The accepted child of a place; kRoot: none.
  int32_t AcceptedAt(int32_t place) const;
  std::vector<NodeFate> Fates() const;

 private:
  void Reject(int32_t node, bool with_descendants, std::vector<NodeFate>* fates) const;

  const TraceTask& task_;
  const int32_t vocab_size_;
  std::vector<int32_t> path_;
};

}  // namespace specd::replay
