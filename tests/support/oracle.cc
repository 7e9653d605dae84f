#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>

namespace specd::oracle {

std::optional<int> Argmax(const std::vector<double>& logits) {
  int best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return std::nullopt;
    if (logits[i] == -INFINITY) continue;
    if (best < 0 || logits[i] > logits[best]) best = static_cast<int>(i);
  }
  if (best < 0) return std::nullopt;
  return best;
}

std::optional<Probabilities> Softmax(const std::vector<double>& logits, double temperature) {
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

double AcceptProbability(const Probabilities& p, const Probabilities& q, int x) {
  const double px = ProbabilityOf(p, x);
  const double qx = ProbabilityOf(q, x);
  if (px == 0) return 0;
  if (qx == 0) return 1;
  return std::min(1.0, px / qx);
}

std::optional<Probabilities> Residual(const Probabilities& p, const Probabilities& q) {
  Probabilities r(p.size());
  double sum = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    r[i] = std::max(p[i] - q[i], 0.0);
    sum += r[i];
  }
  if (sum <= 0) return std::nullopt;
  for (double& x : r) x /= sum;
  return r;
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

}  // namespace specd::oracle
