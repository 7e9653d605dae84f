#include "tools/replay/tree_view.h"

#include <algorithm>
#include <limits>

#include "kernels/core/philox.h"

namespace specd::replay {
namespace {

class Viewer {
 public:
  Viewer(const TraceTask& task, int32_t vocab_size, PlaceRows* rows,
         const RoundRebuilder* rebuilder, size_t i)
      : task_(task),
        tree_(task, vocab_size),
        rows_(rows),
        rebuilder_(rebuilder),
        in_batch_(i),
        coins_(task.seed, task.coins.data(), static_cast<int32_t>(task.coins.size())),
        vocab_size_(static_cast<size_t>(vocab_size)),
        last_place_(tree_.LastPlace()),
        nodes_(task.tokens.size()) {
    const std::vector<NodeFate> fates = tree_.Fates();
    for (int32_t node = 0; node < tree_.num_nodes(); ++node) {
      NodeView& view = At(node);
      view.node = node;
      view.parent = tree_.ParentOf(node);
      view.kind = tree_.KindOf(node);
      view.fate = fates[node];
    }
  }

  absl::StatusOr<std::vector<NodeView>> Run() {
    if (task_.method == VerifyMethod::kTraversal) {
      if (absl::Status status = Judge(0, 1).status(); !status.ok()) return status;
    } else {
      for (int32_t depth = 0; depth <= task_.outcome.num_accepted; ++depth) {
        absl::Status status = Judge(tree_.PlaceAt(depth), 1).status();
        if (!status.ok()) return status;
      }
    }
    TakeSteps();
    std::vector<NodeView> order;
    Draw(0, "", &order);
    return order;
  }

 private:
  using Row = std::vector<double>;

  NodeView& At(int32_t node) { return nodes_[node]; }
  double Coin(int32_t place, int32_t node, Purpose purpose) const {
    const uint32_t depth = tree_.DepthOf(place);
    return CoinToDouble(coins_(
        {task_.first_position + depth, task_.round_base, static_cast<uint32_t>(node), purpose}));
  }

  // p and q of a place; empty: not recorded, or bad.
  absl::Status ReadRows(int32_t place, Row* p, Row* q) {
    if (rebuilder_ == nullptr || task_.target_rows.empty()) return absl::OkStatus();
    if (absl::Status status = rows_->Read(*rebuilder_, in_batch_, place); !status.ok()) {
      return status;
    }
    for (size_t id = 0; rows_->has_p() && id < vocab_size_; ++id) {
      const Candidate candidate = rows_->At(static_cast<TokenId>(id));
      p->push_back(candidate.p);
      if (rows_->has_q()) q->push_back(candidate.q);
    }
    return absl::OkStatus();
  }

  // d of a child; empty: q is not known.
  Row ProposalOf(int32_t node, const std::vector<int32_t>& siblings, const Row& q) const {
    if (tree_.KindOf(node) == DraftKind::kOneHot) {
      Row d(vocab_size_);
      d[tree_.TokenOf(node)] = 1;
      return d;
    }
    Row d = q;
    if (d.empty() || tree_.KindOf(node) == DraftKind::kSampled) return d;
    for (const int32_t other : siblings) {
      const bool is_before = tree_.KindOf(other) == DraftKind::kOneHot || other < node;
      if (is_before) d[tree_.TokenOf(other)] = 0;
    }
    double mass = 0;
    for (const double x : d) mass += x;
    for (double& x : d) x = mass > 0 ? x / mass : 0;
    return d;
  }

  // t becomes (P t - d)+ over its sum; returns P after that.
  static double Reject(double path, const Row& d, Row* t) {
    double mass = 0;
    for (size_t id = 0; id < t->size(); ++id) {
      (*t)[id] = std::max(path * (*t)[id] - d[id], 0.0);
      mass += (*t)[id];
    }
    for (double& x : *t) x = mass > 0 ? x / mass : 0;
    return mass + 1 - path <= mass ? 1 : mass / (mass + 1 - path);
  }

  // Judges the children of a place that the walk has come to, with the fates that are known.
  // Returns the probability with which the path to the place is accepted once they are rejected.
  absl::StatusOr<double> Judge(int32_t place, double path) {
    Row p;
    Row q;
    if (absl::Status status = ReadRows(place, &p, &q); !status.ok()) return status;
    const std::vector<int32_t> children = tree_.ChildrenOf(place);
    Row t = p;
    for (const int32_t child : children) {
      NodeView& view = At(child);
      const Row d = ProposalOf(child, children, q);
      const size_t id = tree_.TokenOf(child);
      if (!p.empty()) view.p = p[id];
      if (view.kind == DraftKind::kOneHot) view.q = 1;
      if (view.kind != DraftKind::kOneHot && !q.empty()) view.q = q[id];
      if (!d.empty()) view.d = d[id];
      if (view.fate == NodeFate::kNotJudged) continue;
      std::optional<double> share;
      if (!t.empty() && !d.empty()) share = d[id] > 0 ? t[id] / d[id] : t[id] > 0 ? kLarge : 0;
      absl::Status status = JudgeChild(place, path, share, &view);
      if (!status.ok()) return status;
      const bool is_rejected = view.fate == NodeFate::kRejected && share.has_value();
      if (is_rejected) path = Reject(path, d, &t);
      if (task_.method == VerifyMethod::kTree) path = 1;
    }
    if (task_.method == VerifyMethod::kTargetOnly || task_.method == VerifyMethod::kThreshold) {
      SumUp(place);
    }
    return path;
  }

  absl::Status JudgeChild(int32_t place, double path, std::optional<double> share, NodeView* view) {
    const int32_t after = PlaceAfter(view->node);
    if (task_.method == VerifyMethod::kTree) {
      view->coin = Coin(place, after, Purpose::kAccept);
      if (share) view->bound = std::min(*share, 1.0);
    }
    if (task_.method != VerifyMethod::kTraversal) return absl::OkStatus();
    const double accepted = share ? std::min(path * *share, 1.0) : 1;
    if (accepted <= 0) {
      view->bound = 0;
      return absl::OkStatus();
    }
    const absl::StatusOr<double> left = Judge(after, accepted);
    if (!left.ok()) return left.status();
    // A node on the path is accepted with what follows it, and its own coin was not asked for.
    if (view->fate == NodeFate::kAccepted && after != last_place_) return absl::OkStatus();
    view->coin = Coin(place, after, Purpose::kAccept);
    if (share) view->bound = *left;
    return absl::OkStatus();
  }

  // `target_only`: one coin over the p of the distinct children, by index.
  void SumUp(int32_t place) {
    double sum = 0;
    std::vector<TokenId> seen;
    for (NodeView& view : nodes_) {
      if (tree_.PlaceOf(view.node) != place || view.fate == NodeFate::kOutside) continue;
      view.coin = Coin(place, place, Purpose::kTree);
      if (!view.p) continue;
      const TokenId id = tree_.TokenOf(view.node);
      if (std::find(seen.begin(), seen.end(), id) == seen.end()) sum += *view.p;
      seen.push_back(id);
      view.bound =
          task_.method == VerifyMethod::kThreshold ? sum / std::max(task_.lossy.acc, 1e-9) : sum;
    }
  }

  // A record has room for the step of one child of a place: the one that was judged last.
  void TakeSteps() {
    for (int32_t place = 0; place <= tree_.num_nodes(); ++place) {
      const size_t index = place;
      PlaceDecision record =
          index < task_.decisions.size() ? task_.decisions[index] : PlaceDecision();
      TokenId token = kNoToken;
      if (rebuilder_ != nullptr) {
        const PlaceDecision& replayed = rebuilder_->decisions(in_batch_)[index];
        token = replayed.draft;
        if (record.zero_step == ZeroStep::kNone) record.zero_step = replayed.zero_step;
      }
      if (record.zero_step == ZeroStep::kNone) continue;
      if (token == kNoToken) token = JudgedLast(place, record.accept_coin);
      for (NodeView& view : nodes_) {
        const bool is_here = tree_.PlaceOf(view.node) == place && tree_.TokenOf(view.node) == token;
        if (is_here && view.fate == NodeFate::kRejected) view.zero_step = record.zero_step;
      }
    }
  }

  // The rejected child of a place that was judged last. `tree` has judged no child after the one
  // that left nothing, and its coin tells which that was.
  TokenId JudgedLast(int32_t place, uint64_t coin) const {
    TokenId last = kNoToken;
    for (const int32_t child : tree_.ChildrenOf(place)) {
      const NodeView& view = nodes_[child];
      const bool is_other = task_.method == VerifyMethod::kTree && view.coin != CoinToDouble(coin);
      if (view.fate == NodeFate::kRejected && !is_other) last = tree_.TokenOf(child);
    }
    return last;
  }

  void Draw(int32_t place, const std::string& before, std::vector<NodeView>* order) {
    std::vector<int32_t> children = tree_.ChildrenOf(place);
    for (int32_t node = 0; node < tree_.num_nodes(); ++node) {
      if (tree_.PlaceOf(node) == place && !tree_.IsInside(node)) children.push_back(node);
    }
    for (const int32_t child : children) {
      const bool is_last = child == children.back();
      NodeView view = At(child);
      view.branch = before + (is_last ? "└─" : "├─");
      order->push_back(std::move(view));
      Draw(PlaceAfter(child), before + (is_last ? "  " : "│ "), order);
    }
  }

  static constexpr double kLarge = std::numeric_limits<double>::infinity();

  const TraceTask& task_;
  const DraftTree tree_;
  PlaceRows* const rows_;
  const RoundRebuilder* const rebuilder_;
  const size_t in_batch_;
  const KeyedCoins coins_;
  const size_t vocab_size_;
  const int32_t last_place_;
  std::vector<NodeView> nodes_;
};

}  // namespace

absl::StatusOr<std::vector<NodeView>> ViewTree(const TraceTask& task, int32_t vocab_size,
                                               PlaceRows* rows, const RoundRebuilder* rebuilder,
                                               size_t i) {
  return Viewer(task, vocab_size, rows, rebuilder, i).Run();
}

std::string_view NameOf(DraftKind kind) {
  switch (kind) {
    case DraftKind::kOneHot:
      return "chosen";
    case DraftKind::kSampled:
      return "drawn";
    case DraftKind::kSampledRest:
      return "drawn from the rest";
  }
  return "?";
}

}  // namespace specd::replay
