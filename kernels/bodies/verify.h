// VerifyChain: which draft tokens of a chain stand, and the token that follows them.
//
// docs/ALGORITHMS.md, "Chains". Rows are read in order and only as far as the decision goes: rows
// after the last one used never matter, whatever they hold (CONTRACT §6). Every group of the team
// computes the same outcome; the leader writes the tokens.
//
// Rows may lie in memory that another process writes. If one changes while it is read, the outcome
// is unspecified but safe: no id outside the vocabulary is emitted, and at worst the row is bad.
#pragma once

#include "kernels/bodies/argmax.h"
#include "kernels/bodies/residual.h"
#include "kernels/bodies/sample.h"
#include "kernels/core/round.h"

namespace specd {

// One verification in progress. CoinSource maps a CoinKey to an integer in [0, 2^53).
template <Team T, typename CoinSource>
class ChainVerifier {
 public:
  SPECD_HD ChainVerifier(T& team, const ChainTask& task, const TensorView& target,
                         const TensorView& draft, const ChainWorkspace& workspace,
                         const CoinSource& coins, TokenId* tokens)
      : team_(team),
        task_(task),
        target_(target),
        draft_(draft),
        workspace_(workspace),
        coins_(coins),
        tokens_(tokens) {}

  SPECD_HD ChainOutcome Run() {
    switch (task_.method) {
      case VerifyMethod::kGreedy:
        Walk([&](int32_t i) { return Argmax(team_, TargetRow(i), workspace_.target); });
        break;
      case VerifyMethod::kExactMatch:
        Walk([&](int32_t i) {
          const Distribution p = ReadTarget(i);
          return p.bad ? kNoToken : Sample(team_, p, coins_(SampleCoin(PositionOf(i))));
        });
        break;
      case VerifyMethod::kToken:
        AcceptOrReplace();
        break;
      case VerifyMethod::kAuto:
        SPECD_CHECK(false);
    }
    return outcome_;
  }

 private:
  // greedy and exact_match: the token at each place is known without the draft; a draft token
  // stands while it equals that token. `next(i)` gives it, or kNoToken for a bad row.
  template <typename Next>
  SPECD_HD void Walk(const Next& next) {
    for (int32_t i = 0;; ++i) {
      const TokenId token = next(i);
      if (token == kNoToken) return Fail(OutcomeStatus::kBadTargetRow);
      if (DraftEndsAt(i)) return Finish(token);
      if (DraftToken(i) != token) {
        CountIfInvalid(DraftToken(i));
        return Finish(token);
      }
      Accept(token);
    }
  }

  // token: Leviathan et al. 2023, Chen et al. 2023.
  SPECD_HD void AcceptOrReplace() {
    for (int32_t i = 0;; ++i) {
      const Distribution p = ReadTarget(i);
      if (p.bad) return Fail(OutcomeStatus::kBadTargetRow);
      if (DraftEndsAt(i)) return Finish(Sample(team_, p, coins_(SampleCoin(PositionOf(i)))));

      // A one-hot draft is q with all mass on its token: weight 1 of mass 1.
      const TokenId token = DraftToken(i);
      Distribution q;
      q.mass = 1;
      float q_weight = 1;
      if (IsSampled(i)) {
        q = ReadDraft(i);
        if (q.bad) return Fail(OutcomeStatus::kBadDraftRow);
        q_weight = WeightOf(q, token);
      }
      // u * q < p, without a division and strict: p = 0 never accepts, p = q > 0 always does.
      const double u = CoinToDouble(coins_(KeyOf(i, i + 1, Purpose::kAccept)));
      const double p_weight = WeightOf(p, token);
      if (u * (q_weight * p.mass) < p_weight * q.mass) {
        Accept(token);
        continue;
      }
      CountIfInvalid(token);
      return Finish(Replacement(i, p, q));
    }
  }

  // Draws from (p - q)+ with the coin of the place where the walk stopped.
  SPECD_HD TokenId Replacement(int32_t i, const Distribution& p, const Distribution& q) {
    const uint64_t coin = coins_(KeyOf(i, i, Purpose::kResidual));
    const TokenId token = DraftToken(i);
    TokenId result = kNoToken;
    if (IsSampled(i)) {
      result = SampleResidual(team_, p, q, coin, workspace_.residual);
    } else if (IsValid(token)) {
      result = SampleWithout(team_, p, token, coin);
    } else {
      return Sample(team_, p, coin);  // a one-hot outside the vocabulary takes nothing from p
    }
    if (result != kNoToken) return result;
    ++outcome_.empty_residuals;
    return Sample(team_, p, coin);
  }

  SPECD_HD bool DraftEndsAt(int32_t i) const {
    return i >= task_.chain.num_drafts || DraftToken(i) == kNoToken;
  }
  SPECD_HD TokenId DraftToken(int32_t i) const { return task_.chain.tokens[i]; }
  SPECD_HD bool IsSampled(int32_t i) const { return task_.chain.kinds[i] == DraftKind::kSampled; }
  SPECD_HD bool IsValid(TokenId token) const { return token >= 0 && token < target_.vocab_size; }

  SPECD_HD RowView TargetRow(int32_t i) const { return RowAt(target_, task_.chain.target_rows[i]); }
  SPECD_HD Distribution ReadTarget(int32_t i) {
    return ReadDistribution(team_, TargetRow(i), task_.target_scale, workspace_.target);
  }
  SPECD_HD Distribution ReadDraft(int32_t i) {
    const RowView row = RowAt(draft_, task_.chain.draft_rows[i]);
    return ReadDistribution(team_, row, task_.draft_scale, workspace_.draft);
  }

  SPECD_HD uint32_t PositionOf(int32_t i) const {
    return task_.first_position + static_cast<uint32_t>(i);
  }
  // The coin that decides about place i, of a node of the draft (0 is the root).
  SPECD_HD CoinKey KeyOf(int32_t i, int32_t node, Purpose purpose) const {
    return {PositionOf(i), task_.round_base, static_cast<uint32_t>(node), purpose};
  }

  SPECD_HD void Accept(TokenId token) {
    Emit(token);
    ++outcome_.num_accepted;
  }
  SPECD_HD void Finish(TokenId token) { Emit(token); }
  SPECD_HD void Fail(OutcomeStatus status) { outcome_.status = status; }
  SPECD_HD void Emit(TokenId token) {
    if (!IsValid(token)) return Fail(OutcomeStatus::kBadTargetRow);
    if (team_.leader()) tokens_[outcome_.num_tokens] = token;
    ++outcome_.num_tokens;
  }
  SPECD_HD void CountIfInvalid(TokenId token) {
    if (!IsValid(token)) ++outcome_.invalid_drafts;
  }

  T& team_;
  const ChainTask& task_;
  const TensorView& target_;
  const TensorView& draft_;
  const ChainWorkspace& workspace_;
  const CoinSource& coins_;
  TokenId* tokens_;
  ChainOutcome outcome_;
};

// REQUIRES: target.vocab_size == draft.vocab_size where a draft token is kSampled; the workspace is
// large enough for it; `tokens` has room for num_drafts + 1.
template <Team T, typename CoinSource>
SPECD_HD ChainOutcome VerifyChain(T& team, const ChainTask& task, const TensorView& target,
                                  const TensorView& draft, const ChainWorkspace& workspace,
                                  const CoinSource& coins, TokenId* tokens) {
  return ChainVerifier<T, CoinSource>(team, task, target, draft, workspace, coins, tokens).Run();
}

}  // namespace specd
