// Truncate applies steps 9 to 11 (min_p, top_k and top_p) to a row, exactly and without a sort, for
// ReadDistribution.
//
// docs/ALGORITHMS.md, "Filters". The order of elements is by value, descending, then by id,
// ascending. Every filter keeps a prefix of that order. A filter is therefore a Cut, and the
// tightest cut wins.
#pragma once

#include "kernels/bodies/cut_search.h"

namespace specd {

// The lowest value that min_p keeps. (l - max) * scale never falls when l rises, so a bisection
// over all floats finds it.
SPECD_INLINE float LowestKeptByMinP(float max, float scale, float min_p) {
  uint32_t low = OrderedKey(kLowestFloat);
  uint32_t high = OrderedKey(max);  // the maximum itself always stays
  if ((kLowestFloat - max) * scale >= min_p) return kLowestFloat;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if ((FloatOfKey(middle) - max) * scale >= min_p) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return FloatOfKey(high);
}

SPECD_INLINE bool HasTopK(const Filters& filters, int32_t vocab_size) {
  return filters.top_k > 0 && filters.top_k < vocab_size;
}
SPECD_INLINE bool HasMinP(const Filters& filters) { return filters.min_p > -kInfinity; }
SPECD_INLINE bool HasTopP(const Filters& filters) { return filters.top_p < kTopPOff; }

// A mass in units of integer weights, in which the maximum has 2^40. If a row changes while it is
// read, its mass may be any number, or NaN.
SPECD_INLINE uint64_t IntegerMass(double mass) {
  constexpr double kOne = 1099511627776.0;
  return mass >= 0 && mass <= 2.0 * kVocabSizeMax ? static_cast<uint64_t>(mass * kOne) : 0;
}

// Whether top_p applies to the distribution of step 8, whose mass is the sum of the tiles' masses.
SPECD_INLINE bool TopPIsOfAll(const Filters& filters, int32_t vocab_size) {
  return HasTopP(filters) &&
         (filters.joint || (!HasTopK(filters, vocab_size) && !HasMinP(filters)));
}

// Whether a read of a row with these filters needs the sums of its tiles.
SPECD_INLINE bool NeedsSums(const Filters& filters, int32_t vocab_size) {
  return (!HasTopK(filters, vocab_size) && !HasMinP(filters)) || TopPIsOfAll(filters, vocab_size);
}

// Sets the cut of a distribution that has row, tiles, max, scale and, if TopPIsOfAll, mass.
// kNarrow: the function may report that the distribution is wide instead, see CutSearch.
template <bool kNarrow, Team T>
SPECD_BODY void Truncate(T& team, const Filters& filters, const RowWorkspace& workspace,
                         Distribution* p) {
  const int32_t vocab_size = p->row.view.vocab_size;
  CutSearch<T, kNarrow> search(team, *p, workspace);
  Cut cut{kLowestFloat, kVocabSizeMax};
  if (HasMinP(filters)) cut.value = LowestKeptByMinP(p->max, p->scale, filters.min_p);
  Cut found;
  if (HasTopK(filters, vocab_size)) {
    const auto k = static_cast<uint64_t>(filters.top_k);
    const float first = KthPeak(team, *p, k);
    if (search.Find({.need = k, .first = first}, &found)) cut = Tighter(cut, found);
  }
  if (HasTopP(filters) && !search.gave_up()) {
    const bool of_all = TopPIsOfAll(filters, vocab_size);
    const uint64_t all = of_all ? IntegerMass(p->mass) : search.Gather(cut);
    // The smallest integer that is not below top_p * all, and at least 1, because even no element
    // reaches 0.
    const uint64_t need = MulDivUp(filters.top_p, all, kTopPOff);
    const CutGoal goal{.need = need > 0 ? need : 1,
                       .by_weight = true,
                       .first = p->max - 8.0f / p->scale,
                       .all = all,
                       .floor = of_all ? kLowestFloat : cut.value};
    if (!search.gave_up() && search.Find(goal, &found)) cut = Tighter(cut, found);
  }
  const uint64_t total = search.gave_up() ? 0 : search.Gather(cut);
  p->wide = search.gave_up();
  if (p->wide) return;
  p->total = total;
  p->mass = static_cast<double>(p->total) * 0x1p-40;
  p->filtered = true;
  search.Describe(cut, p);
}

SPECD_INLINE bool HasFilters(const Filters& filters, int32_t vocab_size) {
  return HasTopK(filters, vocab_size) || HasMinP(filters) || HasTopP(filters);
}

// Reads the row of a distribution that has nothing else yet (ReadDistribution). A large value that
// a function gets or returns by value is copied on a GPU, member after member.
template <bool kNarrow, Team T>
SPECD_BODY void ReadRow(T& team, float scale, const Filters& filters, const RowWorkspace& workspace,
                        Distribution* read) {
  Distribution& p = *read;
  const int32_t vocab_size = p.row.view.vocab_size;
  p.scale = ScaleOf(p.row, scale);
  if (p.row.place.forced != kNoToken) {
    p.point = p.row.place.forced;
    p.mass = 1;
    return;
  }
  const bool with_sums = NeedsSums(filters, vocab_size);
  const JudgedMax judged = ReadAndJudge(team, &p.row, p.scale, with_sums, workspace, &p.stats);
  p.max = judged.max;
  p.fault = judged.fault;
  if (p.bad()) return;
  if (p.max == kInfinity) {
    p.point = LowestIdEqualTo(team, p.row, p.stats, kInfinity);
    p.mass = 1;
    return;
  }
  bool has_mass = false;
  if (with_sums && p.stats.sums == workspace.ahead.stats.sums) {
    p.mass = workspace.ahead.facts->mass;
    p.rough_mass = workspace.ahead.facts->rough_mass;
    // A team that judges at once asks for a mass only if a rough one does not do.
    has_mass = kNarrow || p.mass > 0;
  }
  if (with_sums && !has_mass) p.mass = MassOf(team, p);
  if (HasFilters(filters, vocab_size)) Truncate<kNarrow>(team, filters, workspace, &p);
}

// Reads a row: its maximum, its mass, and its survivors if filters are on. kNarrow: a team of one
// group reads a row that was read ahead. If the filters need more passes, it does not apply them
// and reports that the distribution is wide.
template <bool kNarrow = false, Team T>
SPECD_INLINE Distribution ReadDistribution(T& team, const Row& row, float scale,
                                           const Filters& filters, const RowWorkspace& workspace) {
  Distribution p;
  p.row = row;
  ReadRow<kNarrow>(team, scale, filters, workspace, &p);
  return p;
}

}  // namespace specd
