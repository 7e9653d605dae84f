// TreeWalk and TraversalWalk verify drafts that are trees for RunTask.
//
// docs/ALGORITHMS.md, "Trees". TreeWalk goes down from the root and reads only the rows of the
// places that it comes to. TraversalWalk goes down to the first leaf, and up again while leaves
// fall. A child whose id is outside the vocabulary ends its own branch alone. Both may pause before
// a child (TaskPhase::kChildren), and a later walk goes on there.
#pragma once

#include "kernels/bodies/lossy_judge.h"
#include "kernels/bodies/pauses.h"
#include "kernels/bodies/tree_place.h"

namespace specd {

// `child` stands. If it is kRoot, no child of the place stands, and the verdict has the token.
struct TreeStep {
  int32_t child = kRoot;
  PlaceVerdict verdict = {};
};

template <Team T, typename CoinSource>
class TreeWalk {
 public:
  SPECD_HD TreeWalk(ChainRows<T, CoinSource>& rows, PausesOf<T>& pauses)
      : rows_(rows), pauses_(pauses), tree_(rows) {}

  // Goes on at a place whose children were being judged. Like At, it has no step if it pauses.
  SPECD_HD TreeStep Resume(int32_t place) {
    tree_.Resume(place);
    return AcceptAt(false);
  }
  SPECD_HD TreeStep At(int32_t place) {
    if (rows_.task().method == VerifyMethod::kGreedy) return GreedyAt(place);
    const RowFault fault = tree_.Begin(place, 1.0);
    if (fault != RowFault::kNone) return BadTarget(fault);
    switch (rows_.task().method) {
      case VerifyMethod::kTree:
        return AcceptAt(true);
      case VerifyMethod::kTargetOnly:
      case VerifyMethod::kThreshold:
        return ChooseAt();
      case VerifyMethod::kTypical:
      case VerifyMethod::kRelaxed:
        return DrawOrAcceptAt();
      case VerifyMethod::kSynthetic:
        return AcceptByRateAt();
      default:
        return DrawAt();
    }
  }

 private:
  SPECD_HD static TreeStep BadTarget(RowFault fault) {
    return {.verdict = {.verdict = Verdict::kBadTarget, .fault = fault}};
  }

  // The first child, by index, that has the id.
  SPECD_HD int32_t ChildNamed(int32_t place, TokenId token) const {
    int32_t found = kRoot;
    const Draft& draft = rows_.task().draft;
    for (int32_t node = draft.num_nodes - 1; node >= 0; --node) {
      if (PlaceOf(draft, node) == place && rows_.DraftToken(node) == token) found = node;
    }
    return found;
  }

  SPECD_HD TreeStep GreedyAt(int32_t place) {
    const GreedyToken best = PlaceJudge<false, T, CoinSource>(rows_).GreedyAt(place);
    if (best.token == kNoToken) {
      return BadTarget(best.fault == RowFault::kNone ? RowFault::kChanged : best.fault);
    }
    const int32_t child = ChildNamed(place, best.token);
    return child == kRoot ? TreeStep{.verdict = {Verdict::kEnds, best.token}}
                          : TreeStep{.child = child};
  }

  // The token of the place without a look at the draft.
  SPECD_HD PlaceVerdict TokenAt() {
    if (!rows_.task().lossy.is_greedy) return tree_.Draw(true);
    const Distribution& p = tree_.target();
    const TokenId token =
        p.point != kNoToken ? p.point : LowestIdEqualTo(rows_.team(), p.row, p.stats, p.max);
    if (token == kNoToken) return {.verdict = Verdict::kBadTarget, .fault = RowFault::kChanged};
    return {Verdict::kEnds, token};
  }

  // exact_match: the child that is the token of the place stands.
  SPECD_HD TreeStep DrawAt() {
    const TreeStep step = {.verdict = TokenAt()};
    const int32_t child = ChildNamed(tree_.place(), step.verdict.token);
    return child == kRoot ? step : TreeStep{.child = child};
  }

  // typical, relaxed: exact_match first, and then the first child that the rule accepts.
  SPECD_HD TreeStep DrawOrAcceptAt() {
    const TreeStep step = DrawAt();
    if (step.child != kRoot || step.verdict.verdict != Verdict::kEnds) return step;
    const Draft& draft = rows_.task().draft;
    LossyJudge<T, CoinSource> judge(rows_, tree_.target(), tree_.place());
    for (int32_t node = 0; node < draft.num_nodes; ++node) {
      if (PlaceOf(draft, node) != tree_.place()) continue;
      if (rows_.IsInVocabulary(rows_.DraftToken(node)) && judge.Accepts(node)) {
        return {.child = node};
      }
    }
    return step;
  }

  // synthetic: one child stands with the rate of its depth, whatever p is.
  SPECD_HD TreeStep AcceptByRateAt() {
    const int32_t place = tree_.place();
    const int32_t child = SyntheticChild(rows_, tree_.target(), place);
    if (child == kRoot) return {.verdict = TokenAt()};
    const uint64_t coin = rows_.CoinAt(place, PlaceAfter(child), Purpose::kAccept);
    const double rate = SyntheticRate(rows_.task().lossy, DepthOf(rows_.task().draft, place));
    if (PlaceDecision* record = rows_.RecordOf(place)) {
      record->draft = rows_.DraftToken(child);
      record->accept_coin = coin;
      record->bound = rate;
      rows_.RecordTarget(tree_.target(), record->draft, record);
    }
    if (CoinToDouble(coin) < rate) return {.child = child};
    return {.verdict = TokenAt()};
  }

  // tree: one ACCEPT coin for each child, until one stands.
  SPECD_HD TreeStep AcceptAt(bool is_fresh) {
    int32_t child = kRoot;
    while ((child = tree_.next_child()) != kRoot && !tree_.IsEmpty()) {
      if (pauses_.Before(TaskPhase::kChildren, tree_.place())) {
        tree_.Keep();
        return {};
      }
      const TreeShare share = tree_.ShareOf(child);
      if (share.fault != RowFault::kNone) {
        return {.verdict = {.verdict = Verdict::kBadDraft, .fault = share.fault}};
      }
      const uint64_t coin = rows_.CoinAt(tree_.place(), PlaceAfter(child), Purpose::kAccept);
      if (PlaceDecision* record = rows_.RecordOf(tree_.place())) record->accept_coin = coin;
      if (CoinToDouble(coin) * share.den < share.num) return {.child = child};
      const RowFault fault = tree_.Fall(child);
      if (fault != RowFault::kNone) {
        return {.verdict = {.verdict = Verdict::kBadDraft, .fault = fault}};
      }
    }
    return {.verdict = tree_.Draw(is_fresh)};
  }

  // target_only: one TREE coin over the p of the distinct children, by index. threshold: the same,
  // and the coin may lie below the sum divided by `acc`, or the child's p may reach `single`.
  SPECD_HD TreeStep ChooseAt() {
    const bool is_lossy = rows_.task().method == VerifyMethod::kThreshold;
    const LossyRule& rule = rows_.task().lossy;
    const double acc = !is_lossy ? 1.0 : rule.acc > 1e-9 ? rule.acc : 1e-9;
    const int32_t place = tree_.place();
    if (tree_.next_child() == kRoot) return {.verdict = tree_.Draw(true)};
    const uint64_t coin = rows_.CoinAt(place, place, Purpose::kTree);
    const double point = CoinToDouble(coin) * tree_.target().mass;
    const Draft& draft = rows_.task().draft;
    double sum = 0;
    for (int32_t node = 0; node < draft.num_nodes; ++node) {
      const TokenId token = rows_.DraftToken(node);
      if (!rows_.IsInVocabulary(token)) continue;
      if (PlaceOf(draft, node) != place || ChildNamed(place, token) != node) continue;
      const float weight = rows_.Weight(tree_.target(), token);
      sum += static_cast<double>(weight);
      if (PlaceDecision* record = rows_.RecordOf(place)) {
        record->draft = token;
        record->accept_coin = coin;
        rows_.RecordTarget(tree_.target(), token, record);
        record->bound = sum / (record->p_mass * acc);
      }
      const bool is_single = is_lossy && weight >= rule.single * tree_.target().mass;
      if (weight > 0 && (point * acc < sum || is_single)) return {.child = node};
    }
    return {.verdict = tree_.DrawWithoutChildren(sum)};
  }

  ChainRows<T, CoinSource>& rows_;
  PausesOf<T>& pauses_;
  TreePlace<T, CoinSource> tree_;
};

// traversal: arXiv 2505.12398. The leaves are taken in depth-first order. A bad row makes its place
// a leaf, as in block verification: its children were not needed to see that.
template <Team T, typename CoinSource>
class TraversalWalk {
 public:
  SPECD_HD TraversalWalk(ChainRows<T, CoinSource>& rows, PausesOf<T>& pauses)
      : rows_(rows), pauses_(pauses), draft_(rows.task().draft), tree_(rows) {}

  // Returns the verdict of the place that stands, or none if the task pauses.
  SPECD_HD PlaceVerdict Run() {
    if (pauses_.phase() == TaskPhase::kChildren) {
      Resume();
    } else {
      Enter(0, 1.0);
    }
    do {
      if (pauses_.Before(TaskPhase::kChildren, tree_.place())) return Pause();
    } while (GoesOn());
    if (end_.verdict != Verdict::kUnknown) return end_;
    return tree_.Draw(is_fresh_);
  }
  SPECD_HD int32_t place() const { return tree_.place(); }

 private:
  SPECD_HD void Enter(int32_t place, double path) {
    const RowFault fault = tree_.Begin(place, path);
    end_ = {};
    if (fault != RowFault::kNone) end_ = {.verdict = Verdict::kBadTarget, .fault = fault};
    is_fresh_ = true;
  }

  SPECD_HD PlaceVerdict Pause() {
    tree_.Keep();
    const bool is_target = end_.verdict == Verdict::kBadTarget;
    const auto bad = is_target ? OutcomeStatus::kBadTargetRow : OutcomeStatus::kBadDraftRow;
    pauses_.KeepBlock({.end_status = end_.verdict == Verdict::kUnknown ? OutcomeStatus::kOk : bad,
                       .end_fault = end_.fault});
    return {};
  }
  SPECD_HD void Resume() {
    tree_.Resume(pauses_.place());
    is_fresh_ = false;
    const BlockProgress end = pauses_.block();
    if (end.end_status == OutcomeStatus::kOk) return;
    const bool is_target = end.end_status == OutcomeStatus::kBadTargetRow;
    end_ = {.verdict = is_target ? Verdict::kBadTarget : Verdict::kBadDraft,
            .fault = end.end_fault};
  }

  // Looks at the next child of the place, or at the place itself if it is a leaf now. False: the
  // place stands.
  SPECD_HD bool GoesOn() {
    const int32_t child = end_.verdict == Verdict::kUnknown ? tree_.next_child() : kRoot;
    if (child == kRoot || tree_.IsEmpty()) return !Stands();
    const TreeShare share = tree_.ShareOf(child);
    if (share.fault != RowFault::kNone) {
      end_ = {.verdict = Verdict::kBadDraft, .fault = share.fault};
      return true;
    }
    const double path = PathOf(share);
    if (path > 0) {
      tree_.Keep();
      Enter(PlaceAfter(child), path);
    } else {
      Fall(child);  // nothing below a path that stands with probability 0 does
    }
    return true;
  }
  // A bad draft row that the side channel spoke for makes the place a leaf, as in block
  // verification.
  SPECD_HD void Fall(int32_t child) {
    const RowFault fault = tree_.Fall(child);
    if (fault != RowFault::kNone) end_ = {.verdict = Verdict::kBadDraft, .fault = fault};
  }
  // min(1, P t(x) / d(x)). If d(x) = 0, the ratio is 0 or the result is 1.
  SPECD_HD double PathOf(const TreeShare& share) const {
    if (share.den == 0.0) return share.num == 0.0 ? 0.0 : 1.0;
    const double path = tree_.path() * (share.num / share.den);
    return path < 1.0 ? path : 1.0;
  }

  // Whether the leaf stands. If not, the walk goes up to the place where the leaf falls.
  SPECD_HD bool Stands() {
    const int32_t node = NodeBefore(tree_.place());
    if (node == kRoot) return true;
    const int32_t above = PlaceOf(draft_, node);
    const uint64_t coin = rows_.CoinAt(above, PlaceAfter(node), Purpose::kAccept);
    if (PlaceDecision* record = rows_.RecordOf(above)) record->accept_coin = coin;
    if (tree_.StandsAsLeaf(CoinToDouble(coin))) return true;
    tree_.Resume(above);
    end_ = {};
    is_fresh_ = false;
    Fall(node);
    return false;
  }

  ChainRows<T, CoinSource>& rows_;
  PausesOf<T>& pauses_;
  const Draft& draft_;
  TreePlace<T, CoinSource> tree_;
  PlaceVerdict end_;      // of this place, if a row is bad; kUnknown: none is
  bool is_fresh_ = true;  // the target's tiles are in the workspace
};

}  // namespace specd
