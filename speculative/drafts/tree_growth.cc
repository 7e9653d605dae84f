#include "speculative/drafts/tree_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"
#include "kernels/core/numerics.h"

namespace specd {
namespace {

absl::Status CheckCandidate(const TreeCandidates& candidates, size_t i) {
  const int32_t parent = candidates.parents[i];
  if (parent < kRoot || parent >= static_cast<int64_t>(i)) {
    return absl::InvalidArgumentError(
        fmt::format("parents[{}] = {} is neither -1 nor an earlier candidate", i, parent));
  }
  // A NaN fails every comparison.
  const float score = candidates.scores[i];
  if (!(score <= kInfinity)) {
    return absl::InvalidArgumentError(
        fmt::format("scores[{}] is NaN; do the draft model's logits hold NaN?", i));
  }
  if (parent != kRoot && score > candidates.scores[parent]) {
    return absl::InvalidArgumentError(fmt::format(
        "scores[{}] = {} is above {}, the score of its parent {}; scores are cumulative: the "
        "product of the probabilities on the path, or the sum of their logarithms",
        i, score, candidates.scores[parent], parent));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GrownTree> GrowTree(const TreeCandidates& candidates, int32_t num_nodes,
                                   int32_t max_depth) {
  const size_t count = candidates.parents.size();
  SPECD_CHECK(candidates.scores.size() == count && num_nodes >= 0);
  std::vector<int32_t> depths(count);
  std::vector<int32_t> chosen;
  for (size_t i = 0; i < count; ++i) {
    if (absl::Status status = CheckCandidate(candidates, i); !status.ok()) return status;
    const int32_t parent = candidates.parents[i];
    depths[i] = parent == kRoot ? 1 : depths[parent] + 1;
    if (depths[i] <= max_depth) chosen.push_back(static_cast<int32_t>(i));
  }
  // A parent comes before its children: its score is no lower, and its index is.
  const auto is_better = [&](int32_t a, int32_t b) {
    const float of_a = candidates.scores[a];
    const float of_b = candidates.scores[b];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  if (const size_t most = num_nodes; chosen.size() > most) {
    std::nth_element(chosen.begin(), chosen.begin() + num_nodes, chosen.end(), is_better);
    chosen.resize(most);
  }
  std::sort(chosen.begin(), chosen.end());
  GrownTree tree{.candidates = std::move(chosen), .parents = {}};
  for (const int32_t candidate : tree.candidates) {
    const int32_t parent = candidates.parents[candidate];
    const auto found = std::lower_bound(tree.candidates.begin(), tree.candidates.end(), parent);
    tree.parents.push_back(parent == kRoot ? kRoot
                                           : static_cast<int32_t>(found - tree.candidates.begin()));
  }
  return tree;
}

absl::StatusOr<std::vector<int32_t>> StaticTree(std::span<const uint32_t> widths,
                                                int32_t max_nodes) {
  const size_t most = max_nodes;
  std::vector<int32_t> parents;
  size_t begin = 0;  // of the level before
  std::vector<int32_t> level = {kRoot};
  for (const uint32_t width : widths) {
    if (level.size() * uint64_t{width} > most - parents.size()) {
      return absl::ResourceExhaustedError(fmt::format(
          "widths: the tree has more than {} nodes; use smaller or fewer widths", most));
    }
    begin = parents.size();
    for (const int32_t parent : level) parents.insert(parents.end(), width, parent);
    level.resize(parents.size() - begin);
    std::iota(level.begin(), level.end(), static_cast<int32_t>(begin));
  }
  return parents;
}

}  // namespace specd
