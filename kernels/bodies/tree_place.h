// TreePlace keeps the target and the proposals of one place of a tree while its children are
// verified, for TreeWalk and TraversalWalk.
//
// docs/ALGORITHMS.md, "Trees". The target at a place is t = r / S with r = (a p - c d)+, where d is
// the latest proposal of a drawn child: the draft row, without the ids of earlier siblings if the
// child is kSampledRest. Two numbers therefore describe a place, whatever has fallen there, and the
// draft itself lists the ids with r = 0: those of one-hot children that fell, and those that have
// left d. No row of V numbers is written.
#pragma once

#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/judge_place.h"
#include "kernels/bodies/residual.h"

namespace specd {

// The facts of a place while nodes below it are verified.
struct TreeFacts {
  RowFacts target;
  RowFacts draft;  // of `base`
  double a = 1;
  double c = 0;
  double mass = 1;   // S
  double path = 1;   // P, the probability with which the path to this place stands (traversal)
  double whole = 1;  // P = mass / whole once a child fell
  int32_t place = 0;
  int32_t base = kRoot;      // the drawn child whose proposal is d; kRoot: none
  int32_t last = kRoot;      // the last child that fell; kRoot: none
  TokenId point = kNoToken;  // d had all its mass on this id, which has left r
  // The last child fell, and the pass that its fall takes is not made: S is at most `mass`, and
  // `path` and `whole` are those before the fall.
  bool is_bound = false;
};
static_assert(sizeof(TreeFacts) <= kPlaceBytes);

// t(x) / d(x) = num / den. The child stands if u * den < num.
struct TreeShare {
  RowFault fault = RowFault::kNone;  // of the draft row
  double num = 0;
  double den = 1;
};

template <Team T, typename CoinSource>
class TreePlace {
 public:
  SPECD_HD explicit TreePlace(ChainRows<T, CoinSource>& rows)
      : rows_(rows), team_(rows.team()), draft_(rows.task().draft) {}

  // Reads the target row of a place that no child has been verified at.
  SPECD_HD RowFault Begin(int32_t place, double path) {
    facts_ = {};
    facts_.place = place;
    facts_.path = path;
    p_ = rows_.ReadTarget(place);
    if (!p_.bad()) facts_.target = rows_.FactsOf(p_);
    return p_.fault;
  }

  // Keeps the place in the workspace until Resume. After a fault of Begin only place() and
  // StandsAsLeaf are valid then.
  SPECD_HD void Keep() {
    team_.Sync();
    if (team_.leader()) *FactsAt(facts_.place) = facts_;
    team_.Sync();
  }
  SPECD_HD void Resume(int32_t place) {
    facts_ = *FactsAt(place);
    is_read_ = false;
    p_ = rows_.Recall(rows_.TargetRow(place), facts_.target);
    if (facts_.base != kRoot) {
      q_ = rows_.Recall(rows_.DraftRow(facts_.base), facts_.draft);
      Remove(rest_, ListRest(facts_.base), &q_.row);
    }
    Remove(gone_, ListGone(), &p_.row);
  }

  SPECD_HD int32_t place() const { return facts_.place; }
  SPECD_HD double path() const { return facts_.path; }
  SPECD_HD const Distribution& target() const { return p_; }
  SPECD_HD bool is_changed() const { return facts_.last != kRoot; }
  SPECD_HD bool IsEmpty() {
    Settle();
    return facts_.mass <= 0;
  }
  // The next child with an id inside the vocabulary; kRoot: none.
  SPECD_HD int32_t NextChildAfter(int32_t child) const {
    do {
      child = NextChild(draft_, facts_.place, child);
    } while (child != kRoot && !rows_.IsInVocabulary(rows_.DraftToken(child)));
    return child;
  }
  SPECD_HD int32_t next_child() const { return NextChildAfter(facts_.last); }

  // t(x) / d(x) of a child. Reads the draft row if d changes with this child, unless the side
  // channel gives d(x).
  SPECD_HD TreeShare ShareOf(int32_t child) {
    Settle();
    if (IsDrawn(draft_, child) && facts_.base == kRoot && rows_.HasSideChannel()) {
      return ShareFromSide(child);
    }
    TreeShare share;
    if (IsDrawn(draft_, child)) share.fault = ReadProposal(child);
    if (share.fault != RowFault::kNone) return share;
    const Ratios x = RatiosOf(rows_.DraftToken(child));
    share.num = Rest(x);
    // A one-hot child has d = 1.
    share.den = (IsDrawn(draft_, child) ? x.q : x.one) * facts_.mass;
    Record(child, share, nullptr);
    return share;
  }

  // The child falls: t becomes (P t - d)+ over its sum, and P follows. Returns the fault of a draft
  // row that the side channel spoke for until now; the place is then as it was before. REQUIRES:
  // ShareOf was called for this child last, and the place has mass.
  SPECD_HD RowFault Fall(int32_t child) {
    if (IsDrawn(draft_, child)) {
      const RowFault fault = ReadProposal(child);
      if (fault != RowFault::kNone) return fault;
    }
    const double path = facts_.path;
    const Ratios x = RatiosOf(rows_.DraftToken(child));
    facts_.a = path * (facts_.a / facts_.mass);
    facts_.c = path * (facts_.c / facts_.mass);
    facts_.last = child;
    is_read_ = false;
    if (IsDrawn(draft_, child) && q_.point == kNoToken) {
      facts_.c += 1.0;
      facts_.is_bound = true;
      facts_.mass = facts_.a * (1.0 + kBoundSlack) - (facts_.a * x.p - Rest(x)) / x.one;
      return RowFault::kNone;
    }
    if (IsDrawn(draft_, child)) facts_.point = q_.point;
    Remove(gone_, ListGone(), &p_.row);
    const double left = path - Rest(x) / x.one;
    SetMass(facts_.c == 0.0 ? MassWithoutGone() : left);
    return RowFault::kNone;
  }

  // Whether u is below P, without a division. Most leaves fall, and the bound of S shows it for
  // many of them without a pass over two rows.
  SPECD_HD bool StandsAsLeaf(double u) {
    if (!is_changed()) return u < facts_.path;
    const double most = facts_.mass * (1.0 - u) + kBoundSlack * kBoundSlack;
    if (facts_.is_bound && u * (1.0 - facts_.path) >= most) return false;
    Settle();
    return facts_.whole <= 0.0 || u * facts_.whole < facts_.mass;
  }

  // The token at this place if no child of it stands. `is_fresh`: no row has been read since Begin.
  SPECD_HD PlaceVerdict Draw(bool is_fresh) {
    Settle();
    if (!is_changed()) {
      if (!is_fresh) p_ = rows_.ReadTarget(facts_.place);
      if (p_.bad()) return {.verdict = Verdict::kBadTarget, .fault = p_.fault};
      PlaceJudge<false, T, CoinSource> judge(rows_);
      return {Verdict::kEnds, judge.SampleAt(facts_.place, p_)};
    }
    const uint64_t coin = rows_.CoinAt(facts_.place, facts_.place, Purpose::kResidual);
    const TokenId token = Replacement(coin, is_fresh);
    return token == kNoToken ? FromTarget(coin) : Drawn(token, coin);
  }

  // The token at this place from p without the ids of all children, with the RESIDUAL coin.
  // REQUIRES: no row has been read since Begin, and `taken` of p's mass lies on these ids.
  SPECD_HD PlaceVerdict DrawWithoutChildren(double taken) {
    facts_.mass = taken < p_.mass ? (p_.mass - taken) / p_.mass : 0.0;
    int32_t count = 0;
    for (int32_t child = next_child(); child != kRoot; child = NextChildAfter(child)) {
      AddGone(rows_.DraftToken(child), &count);
    }
    const uint64_t coin = rows_.CoinAt(facts_.place, facts_.place, Purpose::kResidual);
    const TokenId token = SampleWithoutGone(count, coin);
    return token == kNoToken ? FromTarget(coin) : Drawn(token, coin);
  }

 private:
  // p(x), d(x) and 1, over one denominator.
  struct Ratios {
    double p = 0;
    double q = 0;
    double one = 1;
  };

  // Makes the pass that a fall has left.
  SPECD_HD void Settle() {
    if (!facts_.is_bound) return;
    ReadResidualHere();
    SetMass(residual_.mass);
  }
  SPECD_HD void SetMass(double mass) {
    facts_.is_bound = false;
    facts_.mass = mass;
    facts_.whole = mass + (1.0 - facts_.path);
    facts_.path = facts_.whole <= 0.0 ? 1.0 : mass / facts_.whole;
  }

  SPECD_HD TreeFacts* FactsAt(int32_t place) const {
    return static_cast<TreeFacts*>(rows_.workspace().places) + place;
  }

  SPECD_HD Ratios RatiosOf(TokenId x) const {
    const bool has_q = facts_.base != kRoot;
    const double q_mass = has_q ? q_.mass : 1.0;
    const double q_weight = has_q ? static_cast<double>(rows_.Weight(q_, x)) : 0.0;
    const double p_weight = IsRemoved(p_.row, x) ? 0.0 : static_cast<double>(rows_.Weight(p_, x));
    return {p_weight * q_mass, q_weight * p_.mass, p_.mass * q_mass};
  }
  SPECD_HD double Rest(const Ratios& x) const {
    const double rest = facts_.a * x.p - facts_.c * x.q;
    return rest > 0 ? rest : 0;
  }

  SPECD_HD static void Remove(const TokenId* ids, int32_t count, Row* row) {
    row->removed = ids;
    row->num_removed = count;
  }

  // The ids that the proposal of a child leaves out.
  SPECD_HD int32_t ListRest(int32_t child) {
    int32_t count = 0;
    if (KindOf(draft_, child) != DraftKind::kSampledRest) return count;
    for (int32_t node = NextChildAfter(kRoot); node != kRoot; node = NextChildAfter(node)) {
      if (IsDrawn(draft_, node) && node >= child) continue;
      rest_[count++] = rows_.DraftToken(node);
    }
    return count;
  }
  // The ids with r = 0: of one-hot children that fell, and those that have left d. A child falls
  // only where P t(x) < d(x), so a drawn one has left nothing of its id.
  SPECD_HD int32_t ListGone() {
    int32_t count = 0;
    for (int32_t node = NextChildAfter(kRoot); node != kRoot; node = NextChildAfter(node)) {
      const bool fell = node <= facts_.last && !IsDrawn(draft_, facts_.last);
      const bool has_left = KindOf(draft_, node) == DraftKind::kSampledRest && node < facts_.base;
      if (IsDrawn(draft_, node) ? has_left : fell) AddGone(rows_.DraftToken(node), &count);
    }
    if (facts_.point != kNoToken) AddGone(facts_.point, &count);
    return count;
  }
  SPECD_HD void AddGone(TokenId id, int32_t* count) {
    for (int32_t i = 0; i < *count; ++i) {
      if (gone_[i] == id) return;
    }
    gone_[(*count)++] = id;
  }
  // The mass of a p if nothing but p's ids have left.
  SPECD_HD double MassWithoutGone() const {
    Distribution whole = p_;
    whole.row.num_removed = 0;
    double taken = 0;
    for (int32_t i = 0; i < p_.row.num_removed; ++i) {
      taken += static_cast<double>(rows_.Weight(whole, gone_[i]));
    }
    return facts_.a * ((p_.mass - taken) / p_.mass);
  }

  // t(x) / d(x) of the first drawn child of a place, without a look at the draft row: t is p.
  SPECD_HD TreeShare ShareFromSide(int32_t child) const {
    const DraftShare d = rows_.SideChannel(child);
    TreeShare share;
    share.fault = d.fault;
    if (d.bad()) return share;
    share.num = static_cast<double>(rows_.Weight(p_, rows_.DraftToken(child))) * d.mass;
    share.den = static_cast<double>(d.weight) * p_.mass;
    Record(child, share, &d);
    return share;
  }

  // Sets d. The row is read once for kSampled children, and once for each kSampledRest child.
  SPECD_HD RowFault ReadProposal(int32_t child) {
    const int32_t before = facts_.base;
    const bool is_same = before == child || KindOf(draft_, child) == DraftKind::kSampled;
    if (before != kRoot && is_same) return RowFault::kNone;
    const RowFacts of_before = facts_.draft;
    q_ = ReadRest(child);
    if (q_.bad()) return q_.fault;
    facts_.base = child;
    facts_.draft = rows_.FactsOf(q_);
    if (before == kRoot) return RowFault::kNone;
    if (facts_.c > 0) {
      // The proposal before is d times this ratio, at every id that both have.
      const float weight = Exp2((facts_.draft.max - of_before.max) * facts_.draft.scale);
      facts_.c *= static_cast<double>(weight) * (facts_.draft.mass / of_before.mass);
    }
    Remove(gone_, ListGone(), &p_.row);
    return RowFault::kNone;
  }
  // The filters apply to the whole row, as in SampleDraft, and so does the yielding of min_tokens.
  SPECD_HD Distribution ReadRest(int32_t child) {
    const Task& task = rows_.task();
    const int32_t num_rest = ListRest(child);
    if (num_rest == 0) return rows_.ReadDraft(child);
    Row row = rows_.DraftRow(child);
    Filters filters = task.draft_filters;
    if (HasFilters(filters, row.view.vocab_size) || row.place.below_min_tokens) {
      const Distribution q = rows_.ReadDraft(child);
      if (q.bad()) return q;
      row = q.row;
      if (q.point == kNoToken) filters = {};
    }
    const TokenId point = PointLeftOut(row, num_rest);
    Remove(rest_, num_rest, &row);
    Distribution left =
        ReadDistribution(team_, row, task.draft_scale, filters, rows_.workspace().draft);
    // Of several infinite ids the lowest has all mass, so a higher one gets nothing of it.
    const bool is_empty =
        !left.bad() && point != kNoToken && (left.point == kNoToken || point <= left.point);
    if (team_.Agree(is_empty ? 1.0f : 0.0f) != 0.0f) left.fault = RowFault::kNoMass;
    return left;
  }
  // The lowest id left out of a draft row that is forced or infinite; kNoToken: none.
  SPECD_HD TokenId PointLeftOut(const Row& row, int32_t num_rest) const {
    TokenId point = kNoToken;
    for (int32_t i = 0; i < num_rest; ++i) {
      const TokenId id = rest_[i];
      const bool is_point =
          row.place.forced != kNoToken ? id == row.place.forced : ElementOf(row, id) == kInfinity;
      if (is_point && (point == kNoToken || id < point)) point = id;
    }
    return point;
  }

  SPECD_HD void ReadResidualHere() {
    is_read_ = true;
    if (p_.point != kNoToken && IsRemoved(p_.row, p_.point)) {
      residual_ = {.p = &p_, .whole = true};
    } else {
      residual_ = ReadResidual(team_, p_, q_, {facts_.a, facts_.c}, rows_.workspace().residual);
    }
  }

  SPECD_HD TokenId Replacement(uint64_t coin, bool is_fresh) {
    if (facts_.c == 0.0) {
      const int32_t num_gone = p_.row.num_removed;
      if (!is_fresh) p_ = rows_.ReadTarget(facts_.place);
      return p_.bad() ? kNoToken : SampleWithoutGone(num_gone, coin);
    }
    if (!is_read_) ReadResidualHere();
    // A draft row that has become a point since it was first read: there are no masses to draw
    // from.
    if (!residual_.whole && residual_.masses == nullptr) return kNoToken;
    return SampleResidual(team_, residual_, coin);
  }
  // Draws from p without the first `count` of gone_. REQUIRES: p's tiles are in the workspace.
  SPECD_HD TokenId SampleWithoutGone(int32_t count, uint64_t coin) {
    p_.row.num_removed = 0;
    if (count <= 1) return Sample(team_, p_, coin, count == 0 ? kNoToken : gone_[0]);
    if (p_.point != kNoToken) {
      Remove(gone_, count, &p_.row);
      return IsRemoved(p_.row, p_.point) ? kNoToken : p_.point;
    }
    Row row = p_.row;
    Remove(gone_, count, &row);
    const Distribution left =
        ReadDistribution(team_, row, rows_.task().target_scale, {}, rows_.workspace().target);
    return left.bad() ? kNoToken : Sample(team_, left, coin);
  }
  SPECD_HD PlaceVerdict FromTarget(uint64_t coin) {
    p_ = rows_.ReadTarget(facts_.place);
    if (p_.bad()) return {Verdict::kBadTarget, kNoToken, 1, p_.fault};
    const TokenId token = Sample(team_, p_, coin);
    rows_.RecordDraw(facts_.place, p_, token, coin, Purpose::kResidual, 0);
    return {Verdict::kEnds, token, 1};
  }
  SPECD_HD PlaceVerdict Drawn(TokenId token, uint64_t coin) const {
    rows_.RecordDraw(facts_.place, p_, token, coin, Purpose::kResidual, facts_.mass);
    return {Verdict::kEnds, token};
  }
  // A record has room for one child of a place: the last one that was looked at. side: d(x), if the
  // side channel gave it.
  SPECD_HD void Record(int32_t child, const TreeShare& share, const DraftShare* side) const {
    if (PlaceDecision* record = rows_.RecordOf(facts_.place)) {
      const TokenId token = rows_.DraftToken(child);
      const bool is_drawn = IsDrawn(draft_, child);
      record->draft = token;
      rows_.RecordTarget(p_, token, record);
      record->q_weight = side != nullptr ? side->weight : is_drawn ? WeightOf(q_, token) : 1;
      record->q_mass = side != nullptr ? side->mass : is_drawn ? q_.mass : 1;
      record->prefix = facts_.path;
      record->bound = share.num < share.den ? share.num / share.den : 1;
    }
  }

  ChainRows<T, CoinSource>& rows_;
  T& team_;
  const Draft& draft_;
  TreeFacts facts_;
  Distribution p_;
  Distribution q_;
  Residual residual_;
  bool is_read_ = false;  // residual_ is that of the place as it is
  TokenId gone_[kNodesMax + 1];
  TokenId rest_[kNodesMax];
};

}  // namespace specd
