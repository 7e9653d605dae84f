// LossyJudge says which draft tokens the lossy methods accept that a lossless method would not.
//
// CONTRACT §5 has the rules. The token of the place is drawn first, because a rule may overwrite
// the workspace that the row was read with. Every rule accepts only ids with p > 0, or, for
// `synthetic`, ids that steps 1 to 6 leave.
#pragma once

#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/score.h"

namespace specd {

// -w * log2 w, for the entropy of a row: weight and logarithm are relative to its maximum.
struct EntropyFunction {
  float max;
  float scale;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    const Value below = (max - x) * scale;
    // An id without weight counts 0, and so does the end of a row.
    return Exp2((x - max) * scale) * Select(below < 126.0f, below, Value(0.0f));
  }
};

// exp(-H) of a distribution, within a few ulp of fp32. `sums` has an element for each tile.
// REQUIRES: !p.bad().
template <Team T>
SPECD_BODY float ExpOfMinusEntropy(T& team, const Distribution& p, float* sums) {
  if (p.point != kNoToken) return 1.0f;
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    LoadRow(team, p.row, t, kAllSteps, &tile);
    team.Publish(team.Sum(EntropyFunction{p.max, p.scale}, tile), &sums[t]);
  });
  LoadArray(team, sums, num_tiles, &tile);
  const double sum = team.SumInOrder(Identity{}, tile);
  const float bits = Log2(static_cast<float>(p.mass)) + static_cast<float>(sum / p.mass);
  return bits > 0.0f ? Exp2(0.0f - bits) : 1.0f;
}

// The place of an id in the order of truncate.h, from 1 on. REQUIRES: its element is above -inf.
template <Team T>
SPECD_BODY uint64_t PlaceInOrder(T& team, const Distribution& p, TokenId id, float l,
                                 Tally* tallies) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    Tally tally;
    if (p.stats.maxima[t] >= l) {
      LoadRow(team, p.row, t, StepsFrom(p.stats.peaks, t, l), &tile);
      team.Keep(l, id - t * kTileSize, &tile);
      tally.count = static_cast<uint64_t>(team.Count(GreaterThan{-kInfinity}, tile));
    }
    team.Publish(tally, &tallies[t]);
  });
  uint64_t count = 0;
  for (int32_t t = 0; t < num_tiles; ++t) count += tallies[t].count;
  return count;
}

template <Team T, typename CoinSource>
class LossyJudge {
 public:
  // REQUIRES: !p.bad(); the token of the place has been drawn.
  SPECD_HD LossyJudge(ChainRows<T, CoinSource>& rows, const Distribution& p, int32_t place)
      : rows_(rows), team_(rows.team()), rule_(rows.task().lossy), p_(p), place_(place) {}

  // typical and relaxed. REQUIRES: the token of the node is in the vocabulary.
  SPECD_HD bool Accepts(int32_t node) {
    const TokenId token = rows_.DraftToken(node);
    const float weight = rows_.Weight(p_, token);
    const bool is_typical = rows_.task().method == VerifyMethod::kTypical;
    const double bound = is_typical ? TypicalBound() : 1.0 / p_.mass - rule_.delta;
    bool accepts = weight > 0 && static_cast<double>(weight) >= bound * p_.mass;
    if (accepts && !is_typical) accepts = IsRelaxed() && IsAmongBest(token);
    if (PlaceDecision* record = rows_.RecordOf(place_)) {
      record->draft = token;
      rows_.RecordTarget(p_, token, record);
      record->bound = bound > 0 ? bound : 0;
      if (accepts) ForgetDraw(record);
    }
    return accepts;
  }

 private:
  SPECD_HD double TypicalBound() {
    if (typical_bound_ < 0) {
      const float least = ExpOfMinusEntropy(team_, p_, rows_.workspace().residual);
      const double scaled = rule_.delta * static_cast<double>(least);
      typical_bound_ = scaled < rule_.epsilon ? scaled : rule_.epsilon;
    }
    return typical_bound_;
  }
  SPECD_HD bool IsRelaxed() const {
    return !rule_.only_thoughts || (p_.row.place.in_thought && p_.row.place.forced == kNoToken);
  }
  SPECD_HD bool IsAmongBest(TokenId token) {
    if (p_.point != kNoToken) return rule_.num_best > 0;  // the token is the point
    const float l = team_.Agree(ElementOf(p_.row, token));
    return PlaceInOrder(team_, p_, token, l, rows_.workspace().target.tallies) <=
           static_cast<uint64_t>(rule_.num_best);
  }
  // The token that was drawn is not the one that the place has now.
  SPECD_HD static void ForgetDraw(PlaceDecision* record) {
    record->draw_coin = kNoCoin;
    record->draw_interval = {};
    record->token_weight = record->p_weight;
  }

  ChainRows<T, CoinSource>& rows_;
  T& team_;
  const LossyRule& rule_;
  const Distribution& p_;
  const int32_t place_;
  double typical_bound_ = -1;
};

// The node that `synthetic` judges at a place: the first child, by index, that steps 1 to 6 leave.
// kRoot: none.
template <Team T, typename CoinSource>
SPECD_HD int32_t SyntheticChild(const ChainRows<T, CoinSource>& rows, const Distribution& p,
                                int32_t place) {
  Row row = p.row;
  row.has_cut = false;
  const Draft& draft = rows.task().draft;
  for (int32_t node = 0; node < draft.num_nodes; ++node) {
    const TokenId token = rows.DraftToken(node);
    if (PlaceOf(draft, node) != place || !rows.IsInVocabulary(token)) continue;
    const bool is_left = row.place.forced != kNoToken
                             ? token == row.place.forced
                             : rows.MayEmit(place, token) && ElementOf(row, token) > -kInfinity;
    if (rows.team().Agree(is_left ? 1.0f : 0.0f) != 0.0f) return node;
  }
  return kRoot;
}

SPECD_INLINE double SyntheticRate(const LossyRule& rule, int32_t depth) {
  const int32_t i = depth < rule.num_rates ? depth : rule.num_rates - 1;
  return i < 0 ? 0.0 : static_cast<double>(rule.rates[i]);
}

}  // namespace specd
