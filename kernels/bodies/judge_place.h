// JudgePlace forms the verdict of one place of a draft for the methods that verify place by place.
//
// A verdict says whether the draft token stands, and which token replaces it. docs/ALGORITHMS.md,
// "Chains". The team that decides the task judges places in turn. Alternatively, the warp that
// completes a place's rows judges the place at once (judge_row.h, kAtOnce). Such a warp leaves work
// that takes passes over whole rows.
#pragma once

#include "kernels/bodies/argmax.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/residual.h"
#include "kernels/bodies/sample.h"
#include "kernels/bodies/sample_gumbel.h"

namespace specd {

// One group of a team draws for all. The others would take the issue slots of the device from
// teams of other tasks. REQUIRES: a team calls this once for a task.
template <Team T>
SPECD_INLINE TokenId DrawForAll(T& team, const Residual& residual, uint64_t coin, TokenId* drawn) {
  if (team.num_groups() == 1) return SampleResidual(team, residual, coin);
  if (team.group() == 0) team.Publish(SampleResidual(team, residual, coin), drawn);
  team.Sync();
  return *drawn;
}

// Draws the token at place i from the residual, with the coin of the place where the draft falls.
// If rounding left no residual, draws from p.
template <bool kAtOnce, Team T, typename CoinSource>
SPECD_HD PlaceVerdict ReplacementAt(ChainRows<T, CoinSource>& rows, int32_t i,
                                    const Residual& residual) {
  const uint64_t coin = rows.CoinAt(i, i, Purpose::kResidual);
  const TokenId token = DrawForAll(rows.team(), residual, coin, rows.workspace().drawn);
  if (token != kNoToken) {
    rows.RecordDraw(i, *residual.p, token, coin, Purpose::kResidual, residual.mass);
    return {Verdict::kEnds, token};
  }
  const Distribution p = rows.template ReadTarget<kAtOnce>(i);
  if (p.bad()) return {Verdict::kBadTarget, kNoToken, 1, p.fault};
  if (p.wide) return {.verdict = Verdict::kLeft};
  const TokenId from_p = Sample(rows.team(), p, coin);
  rows.RecordDraw(i, p, from_p, coin, Purpose::kResidual, 0);
  return {Verdict::kEnds, from_p, 1};
}

// Does nothing where a draft ends.
struct IgnoreEnd {
  SPECD_INLINE void operator()() const {}
};

// on_end() is called once a draft token is known to fall, before another one is sought.
template <bool kAtOnce, Team T, typename CoinSource, typename OnEnd = IgnoreEnd>
class PlaceJudge {
 public:
  SPECD_HD explicit PlaceJudge(ChainRows<T, CoinSource>& rows, const OnEnd& on_end = {})
      : rows_(rows), team_(rows.team()), on_end_(on_end) {}

  // REQUIRES: the draft is a chain, and the method decides place by place.
  SPECD_HD PlaceVerdict Judge(int32_t i) {
    switch (rows_.task().method) {
      case VerifyMethod::kGreedy:
        return Compare(i, GreedyAt(i));
      case VerifyMethod::kExactMatch:
        return SampleAndCompare(i);
      case VerifyMethod::kToken:
        return AcceptOrReplace(i);
      default:
        return {};
    }
  }

  SPECD_HD GreedyToken GreedyAt(int32_t i) {
    if (rows_.task().draft.target_argmax == nullptr) {
      rows_.AskForRawSums(i);
      return Argmax(team_, rows_.TargetRow(i), rows_.TargetWorkspace(i));
    }
    const TokenId token = rows_.task().draft.target_argmax[i];
    return {rows_.IsInVocabulary(token) ? token : kNoToken};
  }

  SPECD_HD TokenId SampleAt(int32_t i, const Distribution& p) {
    const Task& task = rows_.task();
    if (task.rng == Rng::kSglang) {
      return SampleGumbel(team_, p, {task.seed, rows_.PositionOf(i) + task.rng_offset},
                          rows_.workspace().target.tallies);
    }
    const uint64_t coin = rows_.SampleCoinAt(i);
    const TokenId token = Sample(team_, p, coin);
    rows_.RecordDraw(i, p, token, coin, Purpose::kSample, -1);
    return token;
  }

 private:
  // For greedy and exact_match, the token at each place is known without the draft. A draft token
  // stands if it equals that token. If the row is bad, `target` has a fault. If it has neither a
  // fault nor a token, the row changed while it was read.
  SPECD_HD PlaceVerdict Compare(int32_t i, const GreedyToken& target) const {
    const TokenId token = target.token;
    if (token == kNoToken) {
      const bool changed = target.fault == RowFault::kNone;
      return {.verdict = Verdict::kBadTarget, .fault = changed ? RowFault::kChanged : target.fault};
    }
    if (!rows_.DraftEndsAt(i) && rows_.DraftToken(i) == token) return {.verdict = Verdict::kStands};
    return {Verdict::kEnds, token};
  }

  SPECD_HD PlaceVerdict SampleAndCompare(int32_t i) {
    const Distribution p = rows_.template ReadTarget<kAtOnce>(i);
    if (p.wide) return {.verdict = Verdict::kLeft};
    if (p.bad()) return {.verdict = Verdict::kBadTarget, .fault = p.fault};
    const TokenId token = SampleAt(i, p);
    if (!rows_.DraftEndsAt(i)) rows_.RecordShares(i, p, KnownShare(i));
    return Compare(i, {token});
  }

  // q(x) without a look at the draft row: 1 for a one-hot draft, and else not computed (mass 0).
  SPECD_HD DraftShare KnownShare(int32_t i) const {
    if (!rows_.IsSampled(i)) return {};
    return {.fault = RowFault::kNone, .weight = 0, .mass = 0};
  }

  // token: Leviathan et al. 2023, Chen et al. 2023.
  SPECD_HD PlaceVerdict AcceptOrReplace(int32_t i) {
    // Requested before the row is read.
    const bool has_draft = i < rows_.num_drafts();
    const TokenId draft = has_draft ? rows_.DraftToken(i) : kNoToken;
    const bool is_sampled = has_draft && rows_.IsSampled(i);
    const Distribution p = rows_.template ReadTarget<kAtOnce>(i);
    if (p.bad()) return {.verdict = Verdict::kBadTarget, .fault = p.fault};
    if (p.wide) return {.verdict = Verdict::kLeft};
    if (!rows_.IsInVocabulary(draft)) return {Verdict::kEnds, SampleAt(i, p)};
    Distribution q;
    DraftShare share;
    const bool reads_q = is_sampled && !rows_.HasSideChannel();
    if (reads_q) {
      q = rows_.template ReadDraft<kAtOnce>(i);
      if (q.wide) return {.verdict = Verdict::kLeft};
      share = rows_.ShareOf(q, i);
    } else if (is_sampled) {
      share = rows_.SideChannel(i);
    }
    if (share.bad()) return {.verdict = Verdict::kBadDraft, .fault = share.fault};
    if (rows_.Accepts(i, p, share)) return {.verdict = Verdict::kStands};
    on_end_();
    if (!is_sampled) return Replacement(i, WithoutToken(p, draft));
    if constexpr (kAtOnce) {
      if (!reads_q) return {.verdict = Verdict::kFalls};
      if (TakesPass(p, q)) {
        rows_.NoteFallen(i, p, q);
        return {.verdict = Verdict::kFalls};
      }
      return Replacement(i, ResidualWithoutPass(team_, p, q, {}));
    } else {
      if (!reads_q) q = rows_.ReadDraft(i);
      if (q.bad()) return {.verdict = Verdict::kBadDraft, .fault = q.fault};
      constexpr bool kWithMass = KeepsDraws<T>;
      return Replacement(i, ReadResidual<kWithMass>(team_, p, q, {}, rows_.workspace().residual));
    }
  }

  // p without a one-hot draft token of the vocabulary. Only a record asks for the mass.
  SPECD_HD Residual WithoutToken(const Distribution& p, TokenId token) const {
    if constexpr (KeepsDraws<T>) {
      return ResidualOfPoint(team_, p, token, 1.0);
    } else {
      return {.p = &p, .without = token};
    }
  }

  // p was not wide before. If it is now, the row has changed, and later rows may not be read.
  SPECD_HD PlaceVerdict Replacement(int32_t i, const Residual& residual) {
    const PlaceVerdict place = ReplacementAt<kAtOnce>(rows_, i, residual);
    if (place.verdict != Verdict::kLeft) return place;
    return {.verdict = Verdict::kBadTarget, .fault = RowFault::kChanged};
  }

  ChainRows<T, CoinSource>& rows_;
  T& team_;
  const OnEnd on_end_;
};

template <bool kAtOnce, Team T, typename CoinSource, typename OnEnd = IgnoreEnd>
SPECD_BODY PlaceVerdict JudgePlace(ChainRows<T, CoinSource>& rows, int32_t i,
                                   const OnEnd& on_end = {}) {
  return PlaceJudge<kAtOnce, T, CoinSource, OnEnd>(rows, on_end).Judge(i);
}

}  // namespace specd
