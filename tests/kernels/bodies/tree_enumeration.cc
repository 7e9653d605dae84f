// The rounds of Enumeration whose drafts are trees: the oracle asks for rows, tokens and coins, and
// the enumeration answers from every part of every coin.
#include <algorithm>
#include <numeric>

#include "tests/kernels/bodies/enumeration.h"

namespace specd {

class Enumeration::TreeRound : public oracle::TreeWorld {
 public:
  TreeRound(Enumeration& enumeration, const Tokens& text, CoinPaths& paths, Record* record)
      : enumeration_(enumeration),
        text_(text),
        paths_(paths),
        record_(record),
        tree_{model().options().parents, {}} {
    for (int node = 0; node < tree_.num_nodes(); ++node) {
      tree_.kinds.push_back(model().KindAt(size_t(node)));
    }
    record_->draft.assign(size_t(tree_.num_nodes()), kNoToken);
    record_->is_drawn.assign(size_t(tree_.num_nodes()), false);
  }
  const oracle::Tree& tree() const { return tree_; }

  oracle::Probabilities TargetAt(int place) override { return PlaceAt(place, true).p; }
  oracle::Probabilities DraftAt(int place) override {
    const ChainModel::Place& at = PlaceAt(place, true);
    return enumeration_.fault_.q_unedited ? at.q_unedited : at.q;
  }
  int TokenOf(int node) override { return record_->draft[size_t(node)]; }

  // One-hot children are the best ids of q. The others are drawn, each with the coin of its node.
  void DrawChildren(int place) override {
    const oracle::Probabilities& q = PlaceAt(place, false).q;
    std::vector<int> best(q.size());
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(),
                     [&](int a, int b) { return q[size_t(a)] > q[size_t(b)]; });
    oracle::Probabilities rest = q;
    size_t num_fixed = 0;
    for (const bool is_fixed : {true, false}) {
      for (int node = 0; node < tree_.num_nodes(); ++node) {
        if (tree_.parents[size_t(node)] != place - 1) continue;
        if ((tree_.kinds[size_t(node)] == DraftKind::kOneHot) != is_fixed) continue;
        if (record_->is_drawn[size_t(node)]) return;
        record_->is_drawn[size_t(node)] = true;
        TokenId& token = record_->draft[size_t(node)];
        if (is_fixed) {
          token = num_fixed < best.size() ? best[num_fixed++] : kNoToken;
        } else {
          token = Draw(place, node, tree_.kinds[size_t(node)] == DraftKind::kSampled ? q : rest);
        }
        if (token >= 0 && size_t(token) < rest.size()) rest[size_t(token)] = 0;
      }
    }
  }

  bool Accepts(int node, double probability, double mass) override {
    const CoinKey key = KeyOf(tree_.parents[size_t(node)] + 1, node, Purpose::kAccept);
    // Where t = d, the kernel's ratio is 1 but for rounding, and where t = 0 < p it is 0 but for
    // rounding. These ends have a margin too. A token without p is never accepted.
    const int place = tree_.parents[size_t(node)] + 1;
    const bool is_possible = oracle::ProbabilityOf(TargetAt(place), TokenOf(node)) > 0;
    const double end = std::clamp(probability, is_possible ? 1e-12 : 0.0, 1 - 1e-12);
    return paths_.Choose(enumeration_.IdentityOf(key), {end, 1}, MarginFor(mass)) == 0;
  }
  int Sample(int place, const oracle::Probabilities& law) override {
    const auto position = static_cast<uint32_t>(text_.size()) + DepthOf(place);
    return Choose(SampleCoin(position), law, 1);
  }
  int Replace(int place, const oracle::Probabilities& law, double mass) override {
    return Choose(CoinOf(place, Purpose::kResidual), law, mass);
  }
  int Choose(int place, const std::vector<double>& ends) override {
    std::vector<double> below_1 = ends;  // the last end is 1, and the others have margins
    for (size_t i = 0; i + 1 < ends.size(); ++i) below_1[i] = std::min(ends[i], 1 - 1e-12);
    return static_cast<int>(paths_.Choose(enumeration_.IdentityOf(CoinOf(place, Purpose::kTree)),
                                          below_1, MarginFor(1)));
  }

 private:
  // `mass` divides the rounding of every step that led here.
  static double MarginFor(double mass) { return 0x1p-21 / std::min(1.0, mass); }

  ChainModel& model() const { return enumeration_.model_; }

  uint32_t DepthOf(int place) const {
    uint32_t depth = 0;
    for (int node = place - 1; node >= 0; node = tree_.parents[size_t(node)]) ++depth;
    return depth;
  }
  CoinKey CoinOf(int place, Purpose purpose) const {
    return enumeration_.KeyOf(text_, DepthOf(place), size_t(place), purpose);
  }
  CoinKey KeyOf(int place, int node, Purpose purpose) const {
    size_t number = size_t(node) + 1;
    if (enumeration_.fault_.sibling_keys) {
      number = 1;
      for (int other = 0; other < node; ++other) {
        number += tree_.parents[size_t(other)] == place - 1 ? 1 : 0;
      }
    }
    return enumeration_.KeyOf(text_, DepthOf(place), number, purpose);
  }

  // The row of a place. With a fault, verification sees that of another branch.
  const ChainModel::Place& PlaceAt(int place, bool is_verified) {
    Tokens prefix = enumeration_.PrefixOf(record_->draft, size_t(place));
    if (is_verified && enumeration_.fault_.other_branch && !prefix.empty()) {
      prefix.front() = record_->draft[0];
    }
    return model().At(Concatenate(text_, prefix));
  }

  TokenId Draw(int place, int node, oracle::Probabilities law) {
    const double mass = std::accumulate(law.begin(), law.end(), 0.0);
    if (mass <= 0) return kNoToken;
    for (double& x : law) x /= mass;
    const ModelOptions& options = model().options();
    std::vector<double> ends = oracle::IntervalEnds(law);
    if (options.wide) {
      // The ids that are left out lie inside, so that more of the rest lies outside.
      const double inside = (1 - ChainModel::kOutside) * mass;
      for (double& end : ends) end *= inside / (inside + ChainModel::kOutside);
      ends.push_back(1);
    }
    const CoinKey key = KeyOf(place, node, Purpose::kDraft);
    return static_cast<TokenId>(paths_.Choose(enumeration_.IdentityOf(key), ends, MarginFor(1)));
  }

  int Choose(const CoinKey& key, const oracle::Probabilities& law, double mass) {
    return static_cast<int>(
        paths_.Choose(enumeration_.IdentityOf(key), oracle::IntervalEnds(law), MarginFor(mass)));
  }

  Enumeration& enumeration_;
  const Tokens& text_;
  CoinPaths& paths_;
  Record* const record_;
  oracle::Tree tree_;
};

void Enumeration::WalkTree(const Tokens& text, CoinPaths& paths, Record* record) {
  TreeRound round(*this, text, paths, record);
  oracle::TreeOracle oracle(round.tree(), round, fault_.tree);
  const oracle::TreeResult result = oracle.Verify(model_.options().method);
  for (const int node : result.path) record->emitted.push_back(record->draft[size_t(node)]);
  record->emitted.push_back(result.token);
  record->path = result.path;
}

}  // namespace specd
