#include "tools/replay/draft_tree.h"

#include <algorithm>
#include <numeric>

namespace specd::replay {

std::string_view NameOf(NodeFate fate) {
  switch (fate) {
    case NodeFate::kAccepted:
      return "accepted";
    case NodeFate::kRejected:
      return "rejected";
    case NodeFate::kNotJudged:
      return "not judged";
    case NodeFate::kOutside:
      return "outside the vocabulary";
  }
  return "?";
}

DraftTree::DraftTree(const TraceTask& task, int32_t vocab_size)
    : task_(task), vocab_size_(vocab_size), path_(task.path) {
  if (!task.parents.empty()) return;
  path_.resize(std::clamp(task.outcome.num_accepted, 0, num_nodes()));
  std::iota(path_.begin(), path_.end(), 0);
}

int32_t DraftTree::ParentOf(int32_t node) const {
  return task_.parents.empty() ? node - 1 : task_.parents[node];
}

int32_t DraftTree::DepthOf(int32_t place) const {
  int32_t depth = 0;
  for (int32_t node = NodeBefore(place); node != kRoot; node = ParentOf(node)) ++depth;
  return depth;
}

DraftKind DraftTree::KindOf(int32_t node) const {
  const size_t index = node;
  return index < task_.kinds.size() ? task_.kinds[index] : DraftKind::kOneHot;
}

bool DraftTree::IsInside(int32_t node) const {
  for (; node != kRoot; node = ParentOf(node)) {
    if (!IsInVocabulary(TokenOf(node), vocab_size_)) return false;
  }
  return true;
}

uint32_t DraftTree::NumInside() const {
  // A record that CheckTask refuses may name any parent.
  std::vector<bool> is_inside(task_.tokens.size());
  for (int32_t node = 0; node < num_nodes(); ++node) {
    const size_t index = node;
    const bool has_parent = task_.parents.empty() || index < task_.parents.size();
    const int32_t parent = has_parent ? ParentOf(node) : kRoot;
    const bool follows = parent < 0 || parent >= node || is_inside[parent];
    is_inside[index] = follows && IsInVocabulary(TokenOf(node), vocab_size_);
  }
  return static_cast<uint32_t>(std::count(is_inside.begin(), is_inside.end(), true));
}

std::vector<int32_t> DraftTree::ChildrenOf(int32_t place) const {
  std::vector<int32_t> children;
  for (const bool is_drawn : {true, false}) {
    for (int32_t node = 0; node < num_nodes(); ++node) {
      if (PlaceOf(node) != place || (KindOf(node) != DraftKind::kOneHot) != is_drawn) continue;
      if (IsInside(node)) children.push_back(node);
    }
  }
  return children;
}

int32_t DraftTree::Depth() const {
  int32_t depth = 0;
  for (int32_t node = 0; node < num_nodes(); ++node) {
    if (IsInside(node)) depth = std::max(depth, DepthOf(PlaceAfter(node)));
  }
  return depth;
}

int32_t DraftTree::PlaceAt(int32_t depth) const {
  return depth == 0 ? 0 : PlaceAfter(path_[static_cast<size_t>(depth) - 1]);
}

int32_t DraftTree::AcceptedAt(int32_t place) const {
  for (const int32_t node : path_) {
    if (PlaceOf(node) == place) return node;
  }
  return kRoot;
}

void DraftTree::Reject(int32_t node, bool with_descendants, std::vector<NodeFate>* fates) const {
  (*fates)[static_cast<size_t>(node)] = NodeFate::kRejected;
  if (!with_descendants) return;
  for (const int32_t child : ChildrenOf(PlaceAfter(node))) Reject(child, true, fates);
}

std::vector<NodeFate> DraftTree::Fates() const {
  std::vector<NodeFate> fates(task_.tokens.size(), NodeFate::kNotJudged);
  for (int32_t node = 0; node < num_nodes(); ++node) {
    if (!IsInside(node)) fates[static_cast<size_t>(node)] = NodeFate::kOutside;
  }
  // Siblings are judged in turn until one is accepted by `tree` and `traversal`, which also judges
  // what lies below a sibling first. The other methods judge all children of a place at once.
  const bool in_turn =
      task_.method == VerifyMethod::kTree || task_.method == VerifyMethod::kTraversal;
  const bool is_deep = task_.method == VerifyMethod::kTraversal;
  for (int32_t depth = 0; depth <= task_.outcome.num_accepted; ++depth) {
    const int32_t place = PlaceAt(depth);
    const bool is_last = depth == task_.outcome.num_accepted;
    if (is_last && task_.outcome.status != OutcomeStatus::kOk) break;
    bool has_stood = false;
    for (const int32_t child : ChildrenOf(place)) {
      if (!is_last && child == path_[static_cast<size_t>(depth)]) {
        fates[static_cast<size_t>(child)] = NodeFate::kAccepted;
        has_stood = true;
      } else if (!has_stood || !in_turn) {
        Reject(child, is_deep, &fates);
      }
    }
  }
  return fates;
}

}  // namespace specd::replay
