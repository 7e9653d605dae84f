#include "tools/oracle/tree_oracle.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace specd::oracle {

namespace {

double SumOf(const Probabilities& law) { return std::accumulate(law.begin(), law.end(), 0.0); }

// (a t - d)+ and its sum; the law is divided by it, if there is any.
double TakeAway(double a, const Probabilities& d, Probabilities* t) {
  for (size_t v = 0; v < t->size(); ++v) (*t)[v] = std::max(a * (*t)[v] - d[v], 0.0);
  const double sum = SumOf(*t);
  if (sum > 0) {
    for (double& x : *t) x /= sum;
  }
  return sum;
}

double Ratio(double numerator, double denominator) {
  if (numerator <= 0) return 0;
  return denominator <= 0 ? 1 : std::min(1.0, numerator / denominator);
}

int Best(const Probabilities& p) {
  return static_cast<int>(std::max_element(p.begin(), p.end()) - p.begin());
}

}  // namespace

std::vector<int> TreeOracle::ChildrenOf(int place) {
  world_.DrawChildren(place);
  const int vocab_size = world_.TargetAt(place).size();
  std::vector<int> drawn;
  std::vector<int> fixed;
  std::set<int> seen;
  for (int node = 0; node < tree_.num_nodes(); ++node) {
    if (tree_.parents[size_t(node)] != place - 1) continue;
    const int token = world_.TokenOf(node);
    if (token < 0 || token >= vocab_size) {
      if (fault_.end_takes_siblings) return {};
      continue;
    }
    if (fault_.merged_duplicates && !seen.insert(token).second) continue;
    const bool is_fixed = tree_.kinds[size_t(node)] == DraftKind::kOneHot;
    (is_fixed != fault_.one_hot_first ? fixed : drawn).push_back(node);
  }
  drawn.insert(drawn.end(), fixed.begin(), fixed.end());
  return drawn;
}

Probabilities TreeOracle::ProposalOf(int place, int node) {
  Probabilities d = world_.DraftAt(place);
  const DraftKind kind = tree_.kinds[size_t(node)];
  if (kind == DraftKind::kOneHot) return OneHot(world_.TokenOf(node), d.size());
  if (kind == DraftKind::kSampled || fault_.rest_as_drawn_with) return d;
  for (int other = 0; other < tree_.num_nodes(); ++other) {
    if (tree_.parents[size_t(other)] != place - 1) continue;
    const DraftKind of = tree_.kinds[size_t(other)];
    const bool is_fixed = of == DraftKind::kOneHot && !fault_.one_hot_in_rest;
    if (!is_fixed && !(of == DraftKind::kSampledRest && other < node)) continue;
    const int token = world_.TokenOf(other);
    if (token >= 0 && token < static_cast<int>(d.size())) d[size_t(token)] = 0;
  }
  const double sum = SumOf(d);
  for (double& x : d) x = sum > 0 ? x / sum : 0;
  return d;
}

// d(x) of a child.
double TreeOracle::ShareOf(int place, int node, const Probabilities& proposal) {
  const bool is_rest = tree_.kinds[size_t(node)] == DraftKind::kSampledRest;
  const bool is_wrong = fault_.side_of_whole_row && is_rest;
  return ProbabilityOf(is_wrong ? world_.DraftAt(place) : proposal, world_.TokenOf(node));
}

int TreeOracle::ChildNamed(int place, int token) {
  int found = -1;
  for (const int child : ChildrenOf(place)) {
    if (world_.TokenOf(child) == token && (found < 0 || child < found)) found = child;
  }
  return found;
}

void TreeOracle::WalkEqual(bool greedy) {
  for (int place = 0;;) {
    const Probabilities p = world_.TargetAt(place);
    const int token = greedy ? Best(p) : world_.Sample(place, p);
    const int child = ChildNamed(place, token);
    if (child < 0) {
      result_.token = token;
      return;
    }
    result_.path.push_back(child);
    place = child + 1;
  }
}

void TreeOracle::WalkTargetOnly() {
  for (int place = 0;;) {
    const Probabilities p = world_.TargetAt(place);
    std::vector<int> children = ChildrenOf(place);
    std::sort(children.begin(), children.end());
    if (children.empty()) {
      result_.token = world_.Sample(place, p);
      return;
    }
    std::vector<double> ends;
    Probabilities rest = p;
    double sum = 0;
    for (const int child : children) {
      const auto token = size_t(world_.TokenOf(child));
      sum += rest[token];
      rest[token] = 0;
      ends.push_back(sum);
    }
    ends.push_back(1);
    const int chosen = world_.Choose(place, ends);
    if (chosen == static_cast<int>(children.size())) {
      const double mass = SumOf(rest);
      for (double& x : rest) x /= mass;
      result_.token = world_.Replace(place, rest, mass);
      return;
    }
    result_.path.push_back(children[size_t(chosen)]);
    place = children[size_t(chosen)] + 1;
  }
}

void TreeOracle::WalkTree() {
  for (int place = 0;;) {
    Probabilities t = world_.TargetAt(place);
    double mass = 1;
    bool fell = false;
    int next = -1;
    for (const int child : ChildrenOf(place)) {
      const Probabilities d = ProposalOf(place, child);
      const auto x = size_t(world_.TokenOf(child));
      const double share = ShareOf(place, child, d);
      if (world_.Accepts(child, Ratio(t[x], share), mass * share)) {
        next = child;
        break;
      }
      mass *= TakeAway(1, d, &t);
      fell = true;
    }
    if (next < 0) {
      result_.token = fell ? world_.Replace(place, t, mass) : world_.Sample(place, t);
      return;
    }
    result_.path.push_back(next);
    place = next + 1;
  }
}

// Whether a leaf below the place, or the place itself as a leaf, stands. `path` is alpha.
bool TreeOracle::Traverse(int place, double path, double mass) {
  Probabilities t = world_.TargetAt(place);
  double of_path = mass;
  bool changed = false;
  for (const int child : ChildrenOf(place)) {
    const Probabilities d = ProposalOf(place, child);
    const auto x = size_t(world_.TokenOf(child));
    result_.path.push_back(child);
    const double share = ShareOf(place, child, d);
    if (Traverse(child + 1, Ratio(path * t[x], share), mass * share)) return true;
    result_.path.pop_back();
    const double sum = TakeAway(path, d, &t);
    const double whole = sum + 1 - path;
    if (!fault_.no_path_update) path = whole <= 0 ? 1 : sum / whole;
    of_path = whole <= 0 ? mass : mass * whole;
    mass *= sum;
    changed = true;
  }
  if (place > 0 && !world_.Accepts(place - 1, path, of_path)) return false;
  result_.token = changed ? world_.Replace(place, t, mass) : world_.Sample(place, t);
  return true;
}

TreeResult TreeOracle::Verify(VerifyMethod method) {
  result_ = {};
  switch (method) {
    case VerifyMethod::kGreedy:
    case VerifyMethod::kExactMatch:
      WalkEqual(method == VerifyMethod::kGreedy);
      break;
    case VerifyMethod::kTargetOnly:
      WalkTargetOnly();
      break;
    case VerifyMethod::kTraversal:
      Traverse(0, 1, 1);
      break;
    default:
      WalkTree();
  }
  return result_;
}

}  // namespace specd::oracle
