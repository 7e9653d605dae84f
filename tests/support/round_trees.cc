#include "tests/support/round_trees.h"

#include <algorithm>
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
    if (draft.target_argmax == nullptr) task.method = kMethods[random() % std::size(kMethods)];
    ForcePlaces(round->draft_view().vocab_size, seed + static_cast<uint64_t>(i), &tree, &task);
    const bool reads_q =
        task.method == VerifyMethod::kTree || task.method == VerifyMethod::kTraversal;
    const bool has_drawn =
        std::count(tree.kinds.begin(), tree.kinds.end(), DraftKind::kOneHot) < draft.num_nodes;
    if (reads_q && has_drawn && draft.draft_weights != nullptr) ++num_with_sides_;
  }
}

void RoundTrees::ForcePlaces(int32_t vocab_size, uint64_t seed, Tree* tree, Task* task) {
  if (!task->draft_edits || task->places == nullptr) return;
  std::mt19937_64 random(seed);
  const Draft& draft = task->draft;
  tree->places.assign(task->places, task->places + draft.num_nodes + 1);
  for (int32_t node = 0; node < draft.num_nodes; ++node) {
    const TokenId token = draft.tokens[node];
    const bool is_forced = random() % 2 == 0 && IsInVocabulary(token, vocab_size);
    if (!is_forced || KindOf(draft, node) != DraftKind::kOneHot) continue;
    const int32_t place = PlaceOf(draft, node);
    tree->places[static_cast<size_t>(place)].forced = token;
    bool is_rest = false;
    for (int32_t child = NextChild(draft, place, kRoot); child != kRoot;
         child = NextChild(draft, place, child)) {
      is_rest = is_rest || KindOf(draft, child) == DraftKind::kSampledRest;
    }
    if (is_rest) ++num_forced_out_;
  }
  task->places = tree->places.data();
}

void RoundTrees::MakeLossy(RoundCase* round, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&random] { return static_cast<double>(random() % 9) / 8; };
  rates_ = {.75f, .5f, .875f};
  for (size_t i = 0; i < trees_.size(); ++i) {
    Task& task = round->task(static_cast<int32_t>(i));
    if (task.draft.target_argmax != nullptr) continue;
    if (random() % 5 == 0) {
      task.rng = Rng::kSglang;
      task.rng_offset = static_cast<uint32_t>(random());
      task.target_filters = task.draft_filters = {};
      task.method = VerifyMethod::kExactMatch;
      task.sampling = DraftSampling::kWithReplacement;
      if (task.kind == TaskKind::kSampleDraft) task.num_children = 1;
      continue;
    }
    if (task.kind != TaskKind::kVerify) continue;
    constexpr auto kFirst = static_cast<uint32_t>(VerifyMethod::kTypical);
    task.method = static_cast<VerifyMethod>(kFirst + random() % 4);
    task.lossy.epsilon = number() / 2;
    task.lossy.delta = number();
    task.lossy.single = number();
    task.lossy.acc = number();
    task.lossy.num_best = static_cast<int32_t>(random() % 6);
    task.lossy.only_thoughts = random() % 8 == 0;
    task.lossy.is_greedy = task.method != VerifyMethod::kTypical &&
                           task.method != VerifyMethod::kThreshold && random() % 3 == 0;
    if (task.lossy.is_greedy) task.target_filters = {};
    task.lossy.rates = rates_.data();
    task.lossy.num_rates = static_cast<int32_t>(rates_.size());
  }
}

}  // namespace specd
