// JudgeRow judges one row that was read ahead, or both rows of a place, for the warp that completed
// them.
//
// Warps judge the places of one task at the same time. The decision (verify.h) finds their verdicts
// later.
#pragma once

#include "kernels/bodies/judge_place.h"

namespace specd {

// The facts that the numbers of a row's tiles give. takes_rough: a rough mass does.
template <Team T>
SPECD_INLINE AheadFacts FactsOfTiles(T& team, const RowStats& stats, const AheadRow& row,
                                     bool takes_rough, int32_t num_tiles) {
  const auto number_of = [](const float* array) { return [array](int32_t t) { return array[t]; }; };
  const bool wants_mass = (row.flags & kAheadMass) != 0;
  AheadFacts facts;
  if (num_tiles > T::kHeldMost) {
    facts.max = team.LargestOf(stats.maxima, num_tiles);
    if ((!wants_mass && !takes_rough) || facts.max - facts.max != 0.0f) return facts;
    const TileMassFunction mass{{.max = facts.max, .scale = row.scale}};
    const auto mass_of = [&](int32_t t) { return mass(stats.maxima[t], stats.sums[t]); };
    facts.mass = team.SumTerms(num_tiles, mass_of);
    return facts;
  }
  // Both numbers of all tiles are requested before the first is looked at.
  auto masses = team.Hold(num_tiles, number_of(stats.sums));
  const auto maxima = team.Hold(num_tiles, number_of(stats.maxima), -kInfinity);
  facts.max = team.LargestHeld(maxima);
  if ((!wants_mass && !takes_rough) || facts.max - facts.max != 0.0f) return facts;
  const TileMassFunction mass{{.max = facts.max, .scale = row.scale}};
  SPECD_UNROLL
  for (int32_t k = 0; k < T::kHeldByLane; ++k) {
    masses.terms[k] = mass(maxima.terms[k], masses.terms[k]);
  }
  if (wants_mass) facts.mass = team.SumHeld(num_tiles, masses);
  if (!wants_mass) facts.rough_mass = team.RoughSumHeld(masses);
  return facts;
}

// Publishes the facts that the tiles of a row give.
template <Team T, typename CoinSource>
SPECD_STEP AheadFacts LeaveFacts(ChainRows<T, CoinSource>& rows, const AheadRow& row,
                                 int32_t num_tiles) {
  const AheadRead ahead = rows.AheadOf(row.task_row);
  const bool takes_rough =
      (row.flags & kAheadSums) != 0 && rows.task().method == VerifyMethod::kToken;
  const AheadFacts facts = FactsOfTiles(rows.team(), ahead.stats, row, takes_rough, num_tiles);
  rows.team().Publish(facts, ahead.facts);
  rows.team().Sync();
  return facts;
}

// Publishes the facts of a complete row, and of its partner if it has one. If the draft ends at its
// place for certain, later rows cannot be needed, and on_end() is called, at times twice.
template <Team T, typename CoinSource, typename OnEnd>
SPECD_BODY void JudgeRow(ChainRows<T, CoinSource>& rows, const AheadRow& row,
                         const AheadRow* partner, int32_t vocab_size, const OnEnd& on_end) {
  const int32_t num_tiles = NumTiles(vocab_size);
  AheadFacts facts = LeaveFacts(rows, row, num_tiles);
  // If no element is above -inf, min_tokens may yield, which takes another pass.
  bool may_yield = facts.max == -kInfinity;
  if (partner != nullptr) {
    const AheadFacts of_partner = LeaveFacts(rows, *partner, num_tiles);
    may_yield |= of_partner.max == -kInfinity;
    if (!IsTargetRow(row.task_row)) facts = of_partner;
  }
  const bool decides = IsTargetRow(row.task_row) || partner != nullptr;
  if ((row.flags & kAheadJudged) == 0 || !decides || may_yield) return;
  const int32_t i = row.place;
  rows.NoteComplete(i, IsTargetRow(row.task_row) ? row.row : partner->row);
  facts.place = JudgePlace<true>(rows, i, on_end);
  // The other fields keep their bits.
  rows.team().Publish(facts, rows.AheadOf(TargetTaskRow(i)).facts);
  const Verdict verdict = facts.place.verdict;
  if (!rows.DraftEndsAt(i) && verdict != Verdict::kStands && verdict != Verdict::kLeft) on_end();
}

}  // namespace specd
