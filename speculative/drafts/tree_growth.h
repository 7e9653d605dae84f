// GrowTree chooses the nodes of a draft among the candidates of a drafter, and StaticTree gives the
// shape of a tree whose places have fixed numbers of children.
//
// A drafter of EAGLE's kind proposes more tokens than one round verifies. The best nodes by
// cumulative probability are a tree of their own, because no child has more than its parent.
// docs/ALGORITHMS.md, "Growing a tree". Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace specd {

// Nodes of a draft that are chosen among candidates.
struct GrownTree {
  std::vector<int32_t> candidates;  // the candidate of each node, ascending
  std::vector<int32_t> parents;     // the parent of each node: an earlier node, or kRoot
};

// One element for each candidate.
struct TreeCandidates {
  std::span<const int32_t> parents;  // an earlier candidate, or kRoot
  std::span<const float> scores;     // cumulative; at most the parent's
};

// The num_nodes best candidates, or all if there are fewer; of equal scores the earlier candidates
// first. Candidates with more than max_depth nodes on their path are left out. An error names the
// first candidate that is not as TreeCandidates says. REQUIRES: both lists have one length;
// num_nodes >= 0.
absl::StatusOr<GrownTree> GrowTree(const TreeCandidates& candidates, int32_t num_nodes,
                                   int32_t max_depth);

// The parents of the nodes of a tree, level by level: each place at depth i has widths[i] children.
// RESOURCE_EXHAUSTED if there are more than max_nodes. REQUIRES: max_nodes >= 0.
absl::StatusOr<std::vector<int32_t>> StaticTree(std::span<const uint32_t> widths,
                                                int32_t max_nodes);

}  // namespace specd
