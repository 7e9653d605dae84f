#include "tests/support/round_trees.h"

#include <random>

namespace specd {

RoundTrees::RoundTrees(RoundCase* round, int32_t batch, uint64_t seed) {
  constexpr VerifyMethod kMethods[] = {VerifyMethod::kGreedy,     VerifyMethod::kExactMatch,
                                       VerifyMethod::kTree,       VerifyMethod::kTraversal,
                                       VerifyMethod::kTargetOnly, VerifyMethod::kTree,
                                       VerifyMethod::kTraversal};
  std::mt19937_64 random(seed);
  trees_.resize(static_cast<size_t>(batch));
  for (int32_t i = 0; i < batch; ++i) {
    Task& task = round->task(i);
    if (task.kind != TaskKind::kVerify) continue;
    Draft& draft = task.draft;
    const auto nodes = static_cast<size_t>(draft.num_nodes);
    Tree& tree = trees_[static_cast<size_t>(i)];
    // Siblings are likely, and so are paths of several nodes.
    for (int32_t node = 0; node < draft.num_nodes; ++node) {
      const auto reach = int64_t(random() % 3);
      tree.parents.push_back(static_cast<int32_t>(std::max<int64_t>(node - 1 - reach, kRoot)));
    }
    tree.kinds.resize(nodes);
    tree.draft_rows.assign(draft.draft_rows, draft.draft_rows + nodes);
    std::vector<DraftKind> drawn(nodes + 1);  // by place
    for (DraftKind& kind : drawn) {
      kind = random() % 3 == 0 ? DraftKind::kSampled : DraftKind::kSampledRest;
    }
    for (size_t node = 0; node < nodes; ++node) {
      const auto place = static_cast<size_t>(tree.parents[node] + 1);
      tree.kinds[node] = random() % 3 == 0 ? DraftKind::kOneHot : drawn[place];
      if (place < nodes) tree.draft_rows[node] = draft.draft_rows[place];
    }
    draft.parents = tree.parents.data();
    draft.kinds = tree.kinds.data();
    draft.draft_rows = tree.draft_rows.data();
    draft.draft_weights = nullptr;
    draft.draft_masses = nullptr;
    if (draft.target_argmax == nullptr) task.method = kMethods[random() % std::size(kMethods)];
  }
}

}  // namespace specd
