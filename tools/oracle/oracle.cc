#include "tools/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace specd::oracle {

namespace {

bool Allows(const std::vector<bool>& mask, int id) { return mask.empty() || mask[id]; }

bool Allows(const Steps& steps, int id) {
  return Allows(steps.mask, id) && Allows(steps.allowed, id) && steps.disallowed.count(id) == 0;
}

// All ids in the order of CONTRACT §3.
std::vector<int> Ordered(const std::vector<double>& values) {
  std::vector<int> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return values[a] > values[b]; });
  return ids;
}

using Kept = std::vector<bool>;

Kept KeptByMinP(const Probabilities& p, double min_p) {
  const double top = *std::max_element(p.begin(), p.end());
  Kept kept(p.size());
  for (size_t i = 0; i < p.size(); ++i) kept[i] = p[i] > 0 && p[i] >= min_p * top;
  return kept;
}

Kept KeptByTopK(const Logits& logits, int top_k) {
  Kept kept(logits.size(), true);
  if (top_k <= 0) return kept;
  const std::vector<int> order = Ordered(logits);
  for (size_t n = static_cast<size_t>(top_k); n < order.size(); ++n) kept[order[n]] = false;
  return kept;
}

Kept KeptByTopP(const Logits& logits, const Probabilities& p, double top_p) {
  Kept kept(p.size(), top_p >= 1);
  if (top_p >= 1) return kept;
  double mass = 0;
  for (const int id : Ordered(logits)) {
    kept[id] = true;
    mass += p[id];
    if (mass >= top_p) break;
  }
  return kept;
}

// The probabilities of the kept ids, summing to 1, or the logits with -inf elsewhere.
Probabilities Only(Probabilities p, const Kept& kept) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += kept[i] ? p[i] : 0;
  for (size_t i = 0; i < p.size(); ++i) p[i] = kept[i] ? p[i] / sum : 0;
  return p;
}

Logits Masked(Logits logits, const Kept& kept) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!kept[i]) logits[i] = -INFINITY;
  }
  return logits;
}

}  // namespace

std::optional<int> Argmax(const Logits& logits) {
  int best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return std::nullopt;
    if (logits[i] == -INFINITY) continue;
    if (best < 0 || logits[i] > logits[best]) best = static_cast<int>(i);
  }
  if (best < 0) return std::nullopt;
  return best;
}

std::optional<Probabilities> Softmax(const Logits& logits, double temperature) {
  const std::optional<int> top = Argmax(logits);
  if (!top) return std::nullopt;
  if (logits[*top] == INFINITY) return OneHot(*top, logits.size());
  Probabilities p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp((logits[i] - logits[*top]) / temperature);
    sum += p[i];
  }
  for (double& x : p) x /= sum;
  return p;
}

double ProbabilityOf(const Probabilities& p, int id) {
  return id >= 0 && static_cast<size_t>(id) < p.size() ? p[id] : 0;
}

Probabilities OneHot(int id, size_t vocab_size) {
  Probabilities p(vocab_size, 0.0);
  if (id >= 0 && static_cast<size_t>(id) < vocab_size) p[id] = 1;
  return p;
}

Logits ScaledAndCapped(const Logits& row, double scale, double cap) {
  Logits result = row;
  for (double& x : result) {
    x *= scale;
    if (cap > 0 && std::isfinite(x)) x = cap * std::tanh(x / cap);
  }
  return result;
}

Logits LogOf(const Probabilities& p) {
  Logits result;
  for (const double x : p) result.push_back(std::log(x));
  return result;
}

std::optional<Logits> AfterSteps(const Logits& row, const Steps& steps) {
  const int vocab_size = row.size();
  if (steps.forced) {
    Logits only(row.size(), -INFINITY);
    only[*steps.forced] = 0;
    return only;
  }
  Logits l = row;
  bool only_ends = true;
  for (int id = 0; id < vocab_size; ++id) {
    if (!Allows(steps, id)) {
      l[id] = -INFINITY;
    } else if (l[id] > -INFINITY && steps.end_ids.count(id) == 0) {
      only_ends = false;
    }
  }
  if (!Argmax(l)) return std::nullopt;
  for (const auto& [id, bias] : steps.bias) l[id] += bias;
  if (steps.below_min_tokens && !only_ends) {
    for (const int id : steps.end_ids) l[id] = -INFINITY;
  }
  std::map<int, int> in_output;
  for (const int id : steps.prompt) in_output[id] = 0;
  for (const int id : steps.output) ++in_output[id];
  for (const auto& [id, count] : in_output) {
    if (id < 0 || id >= vocab_size) continue;
    l[id] = l[id] > 0 ? l[id] / steps.repetition : l[id] * steps.repetition;
    if (count > 0) l[id] -= steps.frequency * count + steps.presence;
  }
  for (const int id : steps.banned) l[id] = -INFINITY;
  if (!Argmax(l)) return std::nullopt;
  return l;
}

std::vector<bool> Survivors(const Logits& logits, double temperature,
                            const Truncation& truncation) {
  const Probabilities p = *Softmax(logits, temperature);
  Kept kept = KeptByMinP(p, truncation.min_p);
  if (truncation.joint) {
    const Kept by_top_k = KeptByTopK(logits, truncation.top_k);
    const Kept by_top_p = KeptByTopP(logits, p, truncation.top_p);
    for (size_t i = 0; i < p.size(); ++i) kept[i] = kept[i] && by_top_k[i] && by_top_p[i];
    return kept;
  }
  const Kept by_top_k = KeptByTopK(Masked(logits, kept), truncation.top_k);
  for (size_t i = 0; i < p.size(); ++i) kept[i] = kept[i] && by_top_k[i];
  const Kept by_top_p = KeptByTopP(Masked(logits, kept), Only(p, kept), truncation.top_p);
  for (size_t i = 0; i < p.size(); ++i) kept[i] = kept[i] && by_top_p[i];
  return kept;
}

std::optional<Probabilities> Distribution(const Logits& row, const Steps& steps, double temperature,
                                          const Truncation& truncation) {
  const std::optional<Logits> l = AfterSteps(row, steps);
  if (!l) return std::nullopt;
  return Only(*Softmax(*l, temperature), Survivors(*l, temperature, truncation));
}

Logits Logprobs(const Probabilities& p) { return LogOf(p); }

int RankOf(const std::vector<double>& values, int id) {
  int rank = 1;
  for (const double value : values) rank += value > values[id] ? 1 : 0;
  return rank;
}

std::vector<int> TopIds(const std::vector<double>& values, int count) {
  std::vector<int> ids;
  for (const int id : Ordered(values)) {
    if (static_cast<int>(ids.size()) < count && values[id] > -INFINITY) ids.push_back(id);
  }
  return ids;
}

double AcceptProbability(const Probabilities& p, const Probabilities& q, int x) {
  const double px = ProbabilityOf(p, x);
  const double qx = ProbabilityOf(q, x);
  if (px == 0) return 0;
  if (qx == 0) return 1;
  return std::min(1.0, px / qx);
}

std::optional<Probabilities> Residual(const Probabilities& p, const Probabilities& q, double a) {
  Probabilities r(p.size());
  double sum = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    r[i] = std::max(a * p[i] - q[i], 0.0);
    sum += r[i];
  }
  if (sum <= 0) return std::nullopt;
  for (double& x : r) x /= sum;
  return r;
}

Block BlockOf(const std::vector<Probabilities>& p, const std::vector<Probabilities>& q,
              const std::vector<int>& draft) {
  Block block;
  block.path.push_back(1);
  for (size_t i = 0; i < draft.size(); ++i) {
    const double px = ProbabilityOf(p[i], draft[i]);
    const double qx = ProbabilityOf(q[i], draft[i]);
    const double before = block.path.back();
    const bool impossible = px == 0 || before == 0;
    block.path.push_back(impossible ? 0 : qx == 0 ? 1 : std::min(1.0, before * px / qx));
  }
  for (size_t i = 0; i < draft.size(); ++i) {
    double sum = 0;
    for (size_t v = 0; v < p[i].size(); ++v) {
      sum += std::max(block.path[i] * p[i][v] - q[i][v], 0.0);
    }
    const double denominator = sum + 1 - block.path[i];
    block.residual.push_back(sum);
    block.accept.push_back(i == 0 || denominator <= 0 ? 1 : sum / denominator);
  }
  block.accept.push_back(block.path.back());
  if (draft.empty()) block.accept.back() = 1;
  return block;
}

std::vector<double> IntervalEnds(const Probabilities& p) {
  std::vector<double> ends(p.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    sum += p[i];
    ends[i] = sum;
  }
  return ends;
}

bool IsDraw(const Probabilities& p, int id, double u, double slack) {
  if (id < 0 || static_cast<size_t>(id) >= p.size()) return false;
  const std::vector<double> ends = IntervalEnds(p);
  return u >= (id == 0 ? 0 : ends[id - 1]) - slack && u <= ends[id] + slack;
}

}  // namespace specd::oracle
