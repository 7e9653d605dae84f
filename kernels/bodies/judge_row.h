// JudgeRow: what can be said of one row that was read ahead, or of the two rows of a place, by
// whoever was last with them. Places of one task are judged at the same time, so that the decision
// (verify.h) finds their answers there.
#pragma once

#include "kernels/bodies/argmax.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/sample.h"

namespace specd {

// token: does draft token i stand, as far as its place can say? Where it was sampled from a draft
// row that is not there, true.
template <Team T, typename CoinSource>
SPECD_HD bool Stands(ChainRows<T, CoinSource>& rows, int32_t i, bool has_draft_row) {
  DraftShare q;
  if (rows.IsSampled(i)) {
    if (rows.HasSideChannel()) {
      q = rows.SideChannel(i);
    } else if (has_draft_row) {
      q = rows.ShareOf(rows.template ReadDraft<false>(i), i);
    } else {
      return true;
    }
  }
  const Distribution p = rows.template ReadTarget<false>(i);
  return !p.bad && !q.bad && rows.Accepts(i, p, q);
}

// Leaves what the tiles of a row say of it.
template <Team T, typename CoinSource>
SPECD_STEP AheadFacts LeaveFacts(ChainRows<T, CoinSource>& rows, const AheadRow& row,
                                 int32_t num_tiles) {
  T& team = rows.team();
  const AheadRead ahead = rows.AheadOf(row.slot);
  AheadFacts facts;
  facts.max = MaxOfTiles(team, ahead.stats, num_tiles);
  const bool finite = facts.max - facts.max == 0.0f;
  if ((row.flags & kAheadSums) != 0 && finite) {
    facts.mass = MassOfTiles(team, ahead.stats, num_tiles, WeightFunction{facts.max, row.scale});
  }
  team.Publish(facts, ahead.facts);
  team.Sync();
  return facts;
}

// Leaves the facts of a row, and of its partner if it has one, whose tiles are all there. Returns
// whether the draft ends at its place for certain, so that no row behind it can be needed.
template <Team T, typename CoinSource>
SPECD_BODY bool JudgeRow(ChainRows<T, CoinSource>& rows, const AheadRow& row,
                         const AheadRow* partner, int32_t vocab_size) {
  T& team = rows.team();
  const int32_t num_tiles = NumTiles(vocab_size);
  AheadFacts facts = LeaveFacts(rows, row, num_tiles);
  // Where nothing is above -inf min_tokens may yield, which takes another pass.
  bool may_yield = facts.max == -kInfinity;
  if (partner != nullptr) may_yield |= LeaveFacts(rows, *partner, num_tiles).max == -kInfinity;
  const bool decides = IsTargetSlot(row.slot) || partner != nullptr;
  if ((row.flags & kAheadAtOnce) == 0 || !decides || may_yield) return false;
  const int32_t i = PlaceOfSlot(row.slot);
  if (rows.task().method == VerifyMethod::kToken) {
    return !rows.DraftEndsAt(i) && !Stands(rows, i, partner != nullptr);
  }
  if (rows.task().method == VerifyMethod::kGreedy) {
    facts.token = Argmax(team, rows.TargetRow(i), rows.TargetWorkspace(i));
  } else {
    const Distribution p = rows.template ReadTarget<false>(i);
    facts.token = p.bad ? kNoToken : Sample(team, p, rows.SampleCoinAt(i));
  }
  facts.is_judged = 1;  // the rest is written once more, with the same bits
  team.Publish(facts, rows.AheadOf(row.slot).facts);
  return !rows.DraftEndsAt(i) && rows.DraftToken(i) != facts.token;
}

}  // namespace specd
