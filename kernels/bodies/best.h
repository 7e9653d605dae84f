// VisitBest visits the best ids of a distribution in order for logprobs and top-k drafts.
//
// docs/ALGORITHMS.md, "Filters", has the order, and finds a prefix of it without a sort.
#pragma once

#include "kernels/bodies/truncate.h"

namespace specd {

// Calls visit(place, id, value) for the first n elements in the order of truncate.h. If fewer
// elements are above -inf, there are fewer calls. The function overwrites the workspace that p was
// read with: only row, max, scale and mass of p are valid afterwards. REQUIRES: !p.bad(), p is no
// point, n <= kListMax.
template <Team T, typename Visit>
SPECD_BODY void VisitBest(T& team, const Distribution& p, int32_t n, const RowWorkspace& workspace,
                          const Visit& visit) {
  if (n <= 0) return;
  Distribution whole = p;
  whole.row.has_cut = false;
  CutSearch<T> search(team, whole, workspace);
  Cut cut{kLowestFloat, kVocabSizeMax};
  const float first = KthPeak(team, p, static_cast<uint64_t>(n));
  Cut found;
  if (search.Find({.need = static_cast<uint64_t>(n), .first = first}, &found)) cut = found;
  if (p.row.has_cut) cut = Tighter(cut, p.row.cut);
  search.Gather(cut);
  search.Describe(cut, &whole);
  if (whole.num_listed == 0) {
    // More elements than a list holds are equal to the last one. The cut leaves only few of them.
    CutSearch<T> survivors(team, whole, workspace);
    survivors.Gather(cut);
    survivors.Describe(cut, &whole);
  }

  typename T::Tile tile;
  LoadList(team, whole.list, whole.num_listed, &tile);
  team.Keep(whole.list_cut.value, whole.list_cut.last, &tile);
  for (int32_t place = 0; place < n; ++place) {
    const float value = team.Max(Identity{}, tile);
    if (!(value > -kInfinity)) return;
    const int32_t element = team.FindFirst(EqualTo{value}, tile);
    if (element < 0) return;
    visit(place, whole.list.ids[element], value);
    team.Set(element, -kInfinity, &tile);
  }
}

}  // namespace specd
