// JudgeRow: what can be said of one row that was read ahead, by whoever was last with it. Rows of
// one task are judged at the same time, so that the decision (verify.h) finds their answers there.
#pragma once

#include "kernels/bodies/argmax.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/sample.h"

namespace specd {

// token: does draft token i stand, as far as its place can say? Without its draft row, true.
template <Team T, typename CoinSource>
SPECD_HD bool Stands(ChainRows<T, CoinSource>& rows, int32_t i) {
  if (rows.IsSampled(i) && !rows.HasSideChannel()) return true;
  const Distribution p = rows.template ReadTarget<false>(i);
  const DraftShare q = rows.IsSampled(i) ? rows.SideChannel(i) : DraftShare{};
  return !p.bad && !q.bad && rows.Accepts(i, p, q);
}

// Leaves the facts of a row whose tiles are all there. Returns whether the draft ends at its place
// for certain, so that no row behind it can be needed.
template <Team T, typename CoinSource>
SPECD_BODY bool JudgeRow(ChainRows<T, CoinSource>& rows, const AheadRow& row, int32_t vocab_size) {
  T& team = rows.team();
  const AheadRead ahead = rows.AheadOf(row.slot);
  const int32_t num_tiles = NumTiles(vocab_size);
  AheadFacts facts;
  facts.max = MaxOfTiles(team, ahead.stats, num_tiles);
  const bool finite = facts.max - facts.max == 0.0f;
  if ((row.flags & kAheadSums) != 0 && finite) {
    facts.mass = MassOfTiles(team, ahead.stats, num_tiles, WeightFunction{facts.max, row.scale});
  }
  team.Publish(facts, ahead.facts);
  team.Sync();
  // Where nothing is above -inf min_tokens may yield, which takes another pass.
  const bool is_judged =
      (row.flags & kAheadAtOnce) != 0 && IsTargetSlot(row.slot) && facts.max != -kInfinity;
  if (!is_judged) return false;
  const int32_t i = PlaceOfSlot(row.slot);
  if (rows.task().method == VerifyMethod::kToken) {
    return !rows.DraftEndsAt(i) && !Stands(rows, i);
  }
  if (rows.task().method == VerifyMethod::kGreedy) {
    facts.token = Argmax(team, rows.TargetRow(i), rows.TargetWorkspace(i));
  } else {
    const Distribution p = rows.template ReadTarget<false>(i);
    facts.token = p.bad ? kNoToken : Sample(team, p, rows.SampleCoinAt(i));
  }
  facts.is_judged = 1;  // the rest is written once more, with the same bits
  team.Publish(facts, ahead.facts);
  return !rows.DraftEndsAt(i) && rows.DraftToken(i) != facts.token;
}

}  // namespace specd
