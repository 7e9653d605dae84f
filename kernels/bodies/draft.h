// SampleChildren draws children of one row of the draft model for SampleDraft, by the rules that
// will verify them.
//
// docs/ALGORITHMS.md, "Drafts". Each child has a coin of its own, keyed by its node. The weight and
// the mass of what a child was drawn from are the side channel, so the row need not be read again.
#pragma once

#include "kernels/bodies/best.h"
#include "kernels/bodies/sample.h"
#include "kernels/bodies/sample_gumbel.h"
#include "kernels/core/round.h"

namespace specd {

inline constexpr int32_t kChildrenMax = 64;

// Writes the distinct ids to samples, in the order of their first draw, and returns their number.
// If ids repeat, or if p has too few ids, there are fewer than num_children. coin_of(j) is the coin
// of child j. REQUIRES: !p.bad(), num_children <= kChildrenMax.
// `gumbel` is set for SGLang's generator, which has no coins: it draws one child.
template <Team T, typename CoinOf>
SPECD_BODY int32_t SampleChildren(T& team, const Distribution& p, DraftSampling sampling,
                                  int32_t num_children, const CoinOf& coin_of,
                                  const GumbelPlace* gumbel, const RowWorkspace& workspace,
                                  DraftSample* samples) {
  // Every group keeps its own list: each group must know the ids, but only the leader writes
  // samples.
  TokenId ids[kChildrenMax];
  uint32_t counts[kChildrenMax];
  int32_t num_ids = 0;
  const auto add = [&](const Distribution& from, TokenId id, uint32_t count = 1) {
    for (int32_t i = 0; i < num_ids; ++i) {
      if (ids[i] != id) continue;
      counts[i] += count;
      if (team.leader()) samples[i].count = counts[i];
      return;
    }
    if (team.leader()) {
      const DraftKind kind = KindOfChild(sampling, num_children, num_ids);
      samples[num_ids] = {id, count, WeightOf(from, id), kind, from.mass};
    }
    ids[num_ids] = id;
    counts[num_ids++] = count;
  };

  if (p.point != kNoToken) {
    const bool repeats = sampling == DraftSampling::kWithReplacement;
    add(p, p.point, repeats ? static_cast<uint32_t>(num_children) : 1);
  } else if (sampling == DraftSampling::kWithReplacement) {
    for (int32_t j = 0; j < num_children; ++j) {
      const TokenId id = gumbel != nullptr ? SampleGumbel(team, p, *gumbel, workspace.tallies)
                                           : Sample(team, p, coin_of(j));
      if (id != kNoToken) add(p, id);
    }
  } else {
    int32_t num_best = 0;
    while (num_best < num_children &&
           KindOfChild(sampling, num_children, num_best) == DraftKind::kOneHot) {
      ++num_best;
    }
    VisitBest(team, p, num_best, workspace, [&](int32_t, TokenId id, float) { add(p, id); });
    // Later children are drawn from the remaining ids. Filters are not applied again: the cut
    // stays.
    Row rest = p.row;
    rest.removed = ids;
    Distribution left = p;
    for (int32_t j = num_ids; j >= num_best && j < num_children; ++j) {
      rest.num_removed = num_ids;
      if (j > 0) left = ReadDistribution(team, rest, p.scale, Filters{}, workspace);
      if (left.bad()) break;
      const TokenId id = Sample(team, left, coin_of(j));
      if (id == kNoToken || id < 0 || id >= p.row.view.vocab_size) break;
      add(left, id);
    }
  }
  return num_ids;
}

}  // namespace specd
