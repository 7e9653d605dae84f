// JudgeRow judges one row that was read ahead, or both rows of a place, for the warp that completed
// them.
//
// Warps judge the places of one task at the same time. The decision (verify.h) finds their verdicts
// later.
#pragma once

#include "kernels/bodies/judge_place.h"

namespace specd {

// Publishes the facts that the tiles of a row give.
template <Team T, typename CoinSource>
SPECD_STEP AheadFacts LeaveFacts(ChainRows<T, CoinSource>& rows, const AheadRow& row,
                                 int32_t num_tiles) {
  T& team = rows.team();
  const AheadRead ahead = rows.AheadOf(row.task_row);
  AheadFacts facts;
  facts.max = team.LargestOf(ahead.stats.maxima, num_tiles);
  const bool finite = facts.max - facts.max == 0.0f;
  if ((row.flags & kAheadSums) != 0 && finite) {
    const TileMassFunction mass{{.max = facts.max, .scale = row.scale}};
    facts.mass = team.SumTerms(
        num_tiles, [&](int32_t t) { return mass(ahead.stats.maxima[t], ahead.stats.sums[t]); });
  }
  team.Publish(facts, ahead.facts);
  team.Sync();
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
