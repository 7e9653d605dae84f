// ScoreToken computes the logprobs of one token, of the best ids and of chosen ids for a round or a
// score call (CONTRACT §3).
//
// docs/ALGORITHMS.md, "Logprobs".
#pragma once

#include "kernels/bodies/best.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/core/round.h"

namespace specd {

struct GreaterThan {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x > value;
  }
};

// The rule that turns elements of one distribution into scores.
struct ScoreRule {
  bool logprob = false;
  float max = 0;
  float scale = 0;
  float log2_mass = 0;
  float logit_unit = 1;  // 1 / temperature; final probabilities arrive as log2 p

  SPECD_INLINE float operator()(float l) const {
    constexpr float kLn2 = 0x1.62e430p-1f;
    if (!logprob) return l * logit_unit;
    if (l == -kInfinity) return l;
    return ((l - max) * scale - log2_mass) * kLn2;
  }
};

// 1 + the number of elements above l.
template <Team T>
SPECD_BODY int32_t RankOf(T& team, const Distribution& p, float l, const RowWorkspace& workspace) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    Tally tally;
    if (p.stats.maxima[t] > l) {
      LoadRow(team, p.row, t, StepsFrom(p, t, l), &tile);
      tally.count = static_cast<uint64_t>(team.Count(GreaterThan{l}, tile));
    }
    team.Publish(tally, &workspace.tallies[t]);
  });
  uint64_t rank = 1;
  for (int32_t t = 0; t < num_tiles; ++t) rank += workspace.tallies[t].count;
  return static_cast<int32_t>(rank);
}

// The score at a point mass: its id has probability 1, and all other ids share score rank 2.
SPECD_INLINE TokenScore ScoreOfPoint(TokenId point, TokenId id, bool logprob) {
  if (id != point) return {id, -kInfinity, 2};
  return {id, logprob ? 0.0f : kInfinity, 1};
}

// Writes NumScores(request) entries: the token, the best ids, the chosen ids. Returns the fault of
// a bad row, whose scores are NaN. `target` is the row with its edits; `scale` and `filters` are
// those of its sampling. The raw modes use none of them, and unfiltered logprobs use no filter.
// REQUIRES: all ids are in the vocabulary.
template <Team T>
SPECD_BODY RowFault ScoreToken(T& team, const Row& target, float scale, const Filters& filters,
                               TokenId token, const ScoreRequest& request,
                               const RowWorkspace& workspace, TokenScore* out) {
  const bool raw = IsRaw(request.mode);
  const bool filtered = !raw && request.mode != ScoreMode::kUnfilteredLogprob;
  const bool logprob = GivesLogprobs(request.mode);
  Row row = target;
  if (raw) {
    row = Row{};
    row.view = target.view;
  }
  const Distribution p =
      ReadDistribution(team, row, raw ? kLog2E : scale, filtered ? filters : Filters{}, workspace);
  const int32_t num_scores = NumScores(request);
  const auto write = [&](int32_t i, const TokenScore& score) {
    if (team.leader()) out[i] = score;
  };
  for (int32_t i = 0; i < num_scores; ++i) write(i, TokenScore{});
  const auto id_at = [&](int32_t i) {
    return i == 0 ? token : request.chosen[i - 1 - request.num_top];
  };
  const int32_t first_chosen = 1 + request.num_top;
  if (p.bad() || p.point != kNoToken) {
    for (int32_t i = 0; i < num_scores; i = i == 0 ? first_chosen : i + 1) {
      write(i, p.bad() ? TokenScore{id_at(i), FloatOf(0x7FC00000u), 0}
                       : ScoreOfPoint(p.point, id_at(i), logprob));
    }
    if (!p.bad() && request.num_top > 0) write(1, ScoreOfPoint(p.point, p.point, logprob));
    return p.fault;
  }

  constexpr float kLn2 = 0x1.62e430p-1f;
  const bool final = row.view.rules.kind == RowKind::kFinalProbabilities;
  // After step 11 a logit is divided by the temperature.
  const float unit = final ? kLn2 : raw || scale == kLog2E ? 1.0f : scale * kLn2;
  const ScoreRule rule{logprob, p.max, p.scale, Log2(static_cast<float>(p.mass)), unit};
  for (int32_t i = 0; i < num_scores; i = i == 0 ? first_chosen : i + 1) {
    const float l = ElementOf(p.row, id_at(i));
    write(i, {id_at(i), rule(l), RankOf(team, p, l, workspace)});
  }
  float previous = 0;
  int32_t rank = 0;
  VisitBest(team, p, request.num_top, workspace, [&](int32_t place, TokenId id, float l) {
    if (place == 0 || l != previous) rank = place + 1;
    previous = l;
    write(1 + place, {id, rule(l), rank});
  });
  return RowFault::kNone;
}

// ScoreToken for the token at a place of a task.
template <Team T, typename CoinSource>
SPECD_HD RowFault ScorePlace(ChainRows<T, CoinSource>& rows, int32_t place, TokenId token,
                             TokenScore* out) {
  const Task& task = rows.task();
  const auto score = [&](const RowWorkspace& workspace) {
    return ScoreToken(rows.team(), rows.TargetRow(place), task.target_scale, task.target_filters,
                      token, task.scores, workspace, out);
  };
  if constexpr (SumsRaw<T>) {
    AheadFacts facts;
    return score(rows.ScoreWorkspace(place, &facts));
  } else {
    return score(rows.workspace().target);
  }
}

}  // namespace specd
