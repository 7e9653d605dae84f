// BlockWalk verifies a chain as one block for RunTask (Sun et al., ICLR 2025).
//
// docs/ALGORITHMS.md, "Chains: block". The walk starts at the end of the draft. The coins decide
// whether it takes a step down. Only that step's two rows are read again, unless a bound decides.
#pragma once

#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/pauses.h"
#include "kernels/bodies/residual.h"

namespace specd {

// The facts of one place during the walk.
struct BlockPlace {
  RowFacts target;
  RowFacts draft;
  bool has_draft = false;    // `draft` is set: the row was read, and the side channel was not used
  double prefix = 1;         // P_i, before the token at this place
  double residual_most = 1;  // S_i is at most this
};
static_assert(sizeof(BlockPlace) <= kPlaceBytes);

template <Team T, typename CoinSource>
class BlockWalk {
 public:
  SPECD_HD BlockWalk(ChainRows<T, CoinSource>& rows, PausesOf<T>& pauses)
      : rows_(rows),
        pauses_(pauses),
        places_(static_cast<BlockPlace*>(rows.workspace().places)),
        records_bounds_(rows.is_recorded() &&
                        RecordsBounds(rows.task().seed, rows.task().round_base)),
        num_places_(pauses.block().num_places),
        last_prefix_(pauses.block().prefix) {
    end_status = pauses.block().end_status;
    end_fault = pauses.block().end_fault;
  }

  // Reads the rows up to the end of the draft, or cuts the draft before the first bad row (CONTRACT
  // §2). Then finds the largest i with u_i < h_i. False: the task pauses, and a later walk goes on.
  SPECD_HD bool Run() {
    const bool is_down = pauses_.phase() == TaskPhase::kWayDown;
    if (!is_down && !ReadPlaces()) return false;
    for (num_accepted = is_down ? pauses_.place() : num_places_; num_accepted > 0; --num_accepted) {
      const int32_t i = num_accepted;
      if (pauses_.Before(TaskPhase::kWayDown, i)) return Pause();
      const uint64_t coin = rows_.Coin(KeyOf(i));
      const double u = CoinToDouble(coin);
      const double prefix = PrefixAt(i);
      const bool has_bound = i == num_places_ || IsBoundRecorded(i);
      if (!has_bound) RecordBound(i, coin, -1);
      if (i < num_places_ && FallsByBound(i, u)) continue;
      if (i == num_places_ || !ReadResidualAt(i)) {
        if (has_bound) RecordBound(i, coin, prefix);
        if (u < prefix) break;
        continue;
      }
      const double rest = residual.mass + (1.0 - prefix);  // exactly the mass if P = 1
      if (has_bound) RecordBound(i, coin, rest <= 0.0 ? 1.0 : residual.mass / rest);
      if (rest <= 0.0 || u * rest < residual.mass) break;
    }
    if (num_accepted == 0 && num_places_ > 0) ReadResidualAt(0);
    return true;
  }

  // The results of Run. num_accepted draft tokens are accepted. If these are all num_places()
  // tokens, the final token comes from the row there, and end_status is that row's status, with
  // the row's fault in end_fault. Otherwise the final token comes from `residual`.
  int32_t num_accepted = 0;
  OutcomeStatus end_status = OutcomeStatus::kOk;
  RowFault end_fault = RowFault::kNone;
  Residual residual;

  SPECD_HD int32_t num_places() const { return num_places_; }

 private:
  // P_{i+1} = min(1, P_i p(x)/q(x)). If q(x) = 0, the ratio is 0 or the result is 1. If a path
  // holds a token with p(x) = 0, it stays at 0 for all later tokens.
  SPECD_HD static double NextPrefix(double prefix, const Distribution& p, float p_weight,
                                    const DraftShare& q) {
    const double numerator = static_cast<double>(p_weight) * q.mass;
    const double denominator = static_cast<double>(q.weight) * p.mass;
    if (denominator == 0.0) return numerator == 0.0 || prefix == 0.0 ? 0.0 : 1.0;
    const double next = prefix * (numerator / denominator);
    return next < 1.0 ? next : 1.0;
  }

  // Whether the record has h_i of a place before the last. u_i has no say in this: h_i of the
  // places alone where the pass is made would be a biased sample (docs/ALGORITHMS.md, "block").
  SPECD_HD bool IsBoundRecorded(int32_t i) const {
    return rows_.is_recorded() && (records_bounds_ || !rows_.IsSampled(i));
  }

  // Whether the bound of S_i shows that u_i >= h_i, so that the pass over two rows is not needed.
  SPECD_HD bool FallsByBound(int32_t i, double u) const {
    if (IsBoundRecorded(i)) return false;
    const double most = places_[i].residual_most * (1.0 - u) + kBoundSlack * kBoundSlack;
    return u * (1.0 - places_[i].prefix) >= most;
  }

  // min(P p(x), q(x)), which a residual has not.
  SPECD_HD static double TakenAt(double prefix, const Distribution& p, float p_weight,
                                 const DraftShare& q) {
    const double target = prefix * (static_cast<double>(p_weight) / p.mass);
    const double draft = static_cast<double>(q.weight) / q.mass;
    return target < draft ? target : draft;
  }

  SPECD_HD bool Pause() {
    pauses_.KeepBlock({.num_places = num_places_,
                       .end_status = end_status,
                       .end_fault = end_fault,
                       .prefix = last_prefix_});
    return false;
  }
  SPECD_HD void EndAt(OutcomeStatus status, RowFault fault) {
    end_status = status;
    end_fault = fault;
  }

  SPECD_HD bool ReadPlaces() {
    double& prefix = last_prefix_;
    for (;; ++num_places_) {
      const int32_t i = num_places_;
      if (pauses_.Before(TaskPhase::kPlaces, i)) return Pause();
      const Distribution p = rows_.ReadTarget(i);
      if (p.bad()) {
        EndAt(OutcomeStatus::kBadTargetRow, p.fault);
        break;
      }
      if (rows_.DraftEndsAt(i)) break;
      const TokenId token = rows_.DraftToken(i);
      BlockPlace place;
      place.target = rows_.FactsOf(p);
      place.prefix = prefix;
      DraftShare share;
      const bool from_side = rows_.IsSampled(i) && rows_.HasSideChannel();
      if (from_side) {
        share = rows_.SideChannel(i);
      } else if (rows_.IsSampled(i)) {
        const Distribution q = rows_.ReadDraft(i);
        share.fault = q.fault;
        if (!q.bad()) {
          place.draft = rows_.FactsOf(q);
          place.has_draft = true;
          share.weight = rows_.Weight(q, token);
          share.mass = q.mass;
        }
      }
      if (share.bad()) {
        EndAt(OutcomeStatus::kBadDraftRow, share.fault);
        break;
      }
      const float p_weight = rows_.Weight(p, token);
      place.residual_most = prefix * (1.0 + kBoundSlack);
      // Nothing says that the numbers of a side channel are those of the row that a pass reads.
      if (!from_side) place.residual_most -= TakenAt(prefix, p, p_weight, share);
      if (rows_.team().leader()) places_[i] = place;
      rows_.RecordShares(i, p, share);
      if (PlaceDecision* record = rows_.RecordOf(i)) record->prefix = prefix;
      prefix = NextPrefix(prefix, p, p_weight, share);
    }
    rows_.team().Sync();
    return true;
  }

  SPECD_HD double PrefixAt(int32_t i) const {
    return i == num_places_ ? last_prefix_ : places_[i].prefix;
  }

  // The coin of node i, the token before place i.
  SPECD_HD CoinKey KeyOf(int32_t i) const {
    return {rows_.PositionOf(i - 1), rows_.task().round_base, static_cast<uint32_t>(i),
            Purpose::kAccept};
  }

  // Records h_i and the coin of the token before place i; h_i below 0: not recorded. The bound is
  // divided for the reader; the decision compares products.
  SPECD_HD void RecordBound(int32_t i, uint64_t coin, double bound) const {
    if (PlaceDecision* record = rows_.RecordOf(i - 1)) {
      record->accept_coin = coin;
      record->bound = bound;
    }
  }

  // Returns false if the side channel replaced a draft row that is bad. The draft is then cut
  // before that row, as if the row had been read at first. The coins were used before the cut, so
  // the tokens before the bad row are not lossless (docs/ALGORITHMS.md, "The side channel").
  SPECD_HD bool ReadResidualAt(int32_t i) {
    const BlockPlace place = places_[i];
    p_ = rows_.Recall(rows_.TargetRow(i), place.target);
    if (!rows_.IsSampled(i)) {
      residual = ResidualOfPoint(rows_.team(), p_, rows_.DraftToken(i), place.prefix);
      return true;
    }
    q_ = place.has_draft ? rows_.Recall(rows_.DraftRow(i), place.draft) : rows_.ReadDraft(i);
    if (q_.bad()) {
      EndAt(OutcomeStatus::kBadDraftRow, q_.fault);
      num_places_ = i;
      last_prefix_ = place.prefix;
      return false;
    }
    residual = ReadResidual(rows_.team(), p_, q_, {.p = place.prefix}, rows_.workspace().residual);
    return true;
  }

  ChainRows<T, CoinSource>& rows_;
  PausesOf<T>& pauses_;
  BlockPlace* places_;
  const bool records_bounds_;
  int32_t num_places_;  // the draft tokens that are judged
  double last_prefix_;  // P after them
  Distribution p_;
  Distribution q_;
};

}  // namespace specd
