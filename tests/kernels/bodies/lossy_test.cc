// The lossy methods against their rules (CONTRACT §5) in double precision, at their limits, and as
// their thresholds move.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 7;
constexpr int32_t kNodes = 6;

using Law = std::vector<double>;

// Scale 1 takes logits to the base 2.
Law LawOf(const std::vector<double>& logits) {
  Law p;
  double sum = 0;
  for (const double l : logits) p.push_back(std::exp2(l));
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
  return p;
}

// A random tree, or a chain, with a row for each place.
class LossyCase {
 public:
  LossyCase(std::mt19937_64& random, bool is_chain)
      : rows_({.vocab_size = kVocab, .num_rows = kNodes + 1}) {
    for (int64_t row = 0; row <= kNodes; ++row) {
      laws_.push_back(LawOf(rows_.Set(row, RandomLogits(random, kVocab, 1.5))));
    }
    for (int32_t node = 0; node < kNodes; ++node) {
      const auto reach = static_cast<int32_t>(random() % 3);
      parents_.push_back(is_chain ? node - 1 : std::max(node - 1 - reach, kRoot));
      tokens_.push_back(static_cast<TokenId>(random() % kVocab));
    }
    if (!is_chain) MakeSiblingsDiffer();
    seed_ = random();
  }

  LossyRule rule;

  ChainResult Run(VerifyMethod method, const std::vector<PlaceEdits>& places = {},
                  const MaskView& mask = {}) const {
    ChainCase tree(method, tokens_, DraftKind::kOneHot);
    tree.task.draft.parents = parents_.data();
    tree.task.lossy = rule;
    tree.task.places = places.empty() ? nullptr : places.data();
    return RunScalar(tree.task, rows_.view(), TensorView{}, KeyedCoins(seed_), mask);
  }

  // The token of a place without a draft: what exact_match or greedy gives there.
  TokenId TokenAt(int32_t place, int32_t depth) const {
    ChainCase one(rule.is_greedy ? VerifyMethod::kGreedy : VerifyMethod::kExactMatch, {},
                  DraftKind::kOneHot, static_cast<uint32_t>(place));
    one.task.first_position = static_cast<uint32_t>(depth);
    return RunScalar(one.task, rows_.view(), TensorView{}, KeyedCoins(seed_)).tokens[0];
  }

  double Coin(int32_t depth, int32_t node, Purpose purpose) const {
    return CoinToDouble(KeyedCoins(seed_)({.position = static_cast<uint32_t>(depth),
                                           .node = static_cast<uint32_t>(node),
                                           .purpose = purpose}));
  }

  const Law& law(int32_t place) const { return laws_[static_cast<size_t>(place)]; }
  TokenId token(int32_t node) const { return tokens_[static_cast<size_t>(node)]; }
  std::vector<int32_t> ChildrenOf(int32_t place) const {
    std::vector<int32_t> children;
    for (int32_t node = 0; node < kNodes; ++node) {
      if (parents_[static_cast<size_t>(node)] + 1 == place) children.push_back(node);
    }
    return children;
  }

 private:
  void MakeSiblingsDiffer() {
    for (int32_t node = 0; node < kNodes; ++node) {
      for (int32_t other = 0; other < node; ++other) {
        if (parents_[size_t(other)] != parents_[size_t(node)]) continue;
        if (tokens_[size_t(other)] != tokens_[size_t(node)]) continue;
        tokens_[size_t(node)] = (tokens_[size_t(node)] + 1) % kVocab;
        other = -1;
      }
    }
  }

  RowMatrix rows_;
  std::vector<Law> laws_;
  std::vector<int32_t> parents_;
  std::vector<TokenId> tokens_;
  uint64_t seed_ = 0;
};

// The rule in double precision; `is_close` is set where the answer hangs on the last digits.
struct Judged {
  bool accepts = false;
  bool is_close = false;
};

Judged ByBound(double p, double bound) {
  return {p > 0 && p >= bound, std::fabs(p - bound) < 1e-6};
}

Judged Typical(const LossyCase& c, int32_t place, TokenId x) {
  const Law& p = c.law(place);
  double entropy = 0;
  for (const double each : p) entropy -= each > 0 ? each * std::log(each) : 0;
  return ByBound(p[size_t(x)], std::min(c.rule.epsilon, c.rule.delta * std::exp(-entropy)));
}

Judged Relaxed(const LossyCase& c, int32_t place, TokenId x) {
  const Law& p = c.law(place);
  int before = 0;
  for (TokenId id = 0; id < kVocab; ++id) {
    before += p[size_t(id)] > p[size_t(x)] || (p[size_t(id)] == p[size_t(x)] && id < x);
  }
  Judged judged = ByBound(p[size_t(x)], *std::max_element(p.begin(), p.end()) - c.rule.delta);
  judged.accepts &= before < c.rule.num_best;
  return judged;
}

// The walk of typical and relaxed: the path, and whether it is certain.
template <class Rule>
std::vector<int32_t> PathBy(const LossyCase& c, const Rule& rule, bool* is_certain) {
  std::vector<int32_t> path;
  int32_t place = 0;
  for (;;) {
    const TokenId y = c.TokenAt(place, int32_t(path.size()));
    int32_t next = kRoot;
    for (const int32_t child : c.ChildrenOf(place)) {
      if (c.token(child) == y) next = child;
    }
    for (const int32_t child : c.ChildrenOf(place)) {
      if (next != kRoot) break;
      const Judged judged = rule(c, place, c.token(child));
      *is_certain &= !judged.is_close;
      if (judged.accepts) next = child;
    }
    if (next == kRoot) return path;
    path.push_back(next);
    place = PlaceAfter(next);
  }
}

std::vector<int32_t> PathOfThreshold(const LossyCase& c, bool* is_certain) {
  std::vector<int32_t> path;
  int32_t place = 0;
  for (;;) {
    const double u = c.Coin(int32_t(path.size()), place, Purpose::kTree);
    double sum = 0;
    int32_t next = kRoot;
    for (const int32_t child : c.ChildrenOf(place)) {
      const double p = c.law(place)[size_t(c.token(child))];
      sum += p;
      const double acc = std::max(c.rule.acc, 1e-9);
      *is_certain &= std::fabs(u - sum / acc) > 1e-6 && std::fabs(p - c.rule.single) > 1e-6;
      next = u < sum / acc || p >= c.rule.single ? child : kRoot;
      if (next != kRoot) break;
    }
    if (next == kRoot) return path;
    path.push_back(next);
    place = PlaceAfter(next);
  }
}

double AnyNumber(std::mt19937_64& random) { return static_cast<double>(random() % 1000) / 999; }

TEST_SUITE("unit") {
  TEST_CASE("typical, relaxed and threshold follow their rules on trees and chains") {
    std::mt19937_64 random(61);
    int num_certain = 0;
    size_t num_accepted = 0;
    for (int trial = 0; trial < 1500; ++trial) {
      CAPTURE(trial);
      LossyCase c(random, trial % 4 == 0);
      c.rule.epsilon = AnyNumber(random) / 2;
      c.rule.delta = AnyNumber(random) * 1.5;
      c.rule.single = AnyNumber(random);
      c.rule.acc = AnyNumber(random);
      c.rule.num_best = int32_t(random() % 5);
      bool is_certain = true;
      const std::vector<int32_t> typical = PathBy(c, Typical, &is_certain);
      if (is_certain) CHECK(c.Run(VerifyMethod::kTypical).path == typical);
      num_certain += is_certain;
      c.rule.is_greedy = trial % 3 == 0;
      is_certain = true;
      const std::vector<int32_t> relaxed = PathBy(c, Relaxed, &is_certain);
      if (is_certain) CHECK(c.Run(VerifyMethod::kRelaxed).path == relaxed);
      num_certain += is_certain;
      c.rule.is_greedy = false;
      is_certain = true;
      const std::vector<int32_t> threshold = PathOfThreshold(c, &is_certain);
      if (is_certain) CHECK(c.Run(VerifyMethod::kThreshold).path == threshold);
      num_certain += is_certain;
      num_accepted += typical.size() + relaxed.size() + threshold.size();
    }
    CHECK(num_certain > 4000);
    CHECK(num_accepted > 2000);
  }

  TEST_CASE("at its limit each lossy method is its lossless parent, bit for bit") {
    std::mt19937_64 random(62);
    for (int trial = 0; trial < 500; ++trial) {
      CAPTURE(trial);
      LossyCase c(random, trial % 4 == 0);
      c.rule.epsilon = 1;
      c.rule.delta = kVocab;
      CHECK(c.Run(VerifyMethod::kTypical) == c.Run(VerifyMethod::kExactMatch));
      CHECK(c.Run(VerifyMethod::kThreshold) == c.Run(VerifyMethod::kTargetOnly));
      c.rule.num_best = 0;
      CHECK(c.Run(VerifyMethod::kRelaxed) == c.Run(VerifyMethod::kExactMatch));
      c.rule.is_greedy = true;
      CHECK(c.Run(VerifyMethod::kRelaxed) == c.Run(VerifyMethod::kGreedy));
      // The best id alone is the argmax.
      c.rule.num_best = 1;
      CHECK(c.Run(VerifyMethod::kRelaxed) == c.Run(VerifyMethod::kGreedy));
      // With rates of 0 the text is that without a draft.
      const float none = 0;
      c.rule.rates = &none;
      c.rule.num_rates = 1;
      for (const bool is_greedy : {true, false}) {
        c.rule.is_greedy = is_greedy;
        const ChainResult synthetic = c.Run(VerifyMethod::kSynthetic);
        CHECK(synthetic.tokens == std::vector<TokenId>{c.TokenAt(0, 0)});
        CHECK(synthetic.path.empty());
      }
    }
  }

  TEST_CASE("synthetic accepts each depth at its rate") {
    std::mt19937_64 random(64);
    const std::vector<float> rates = {.9f, .5f, .2f};
    std::vector<int> reached(kNodes + 1);
    constexpr int kTrials = 40'000;
    for (int trial = 0; trial < kTrials; ++trial) {
      LossyCase c(random, true);
      c.rule.rates = rates.data();
      c.rule.num_rates = 3;
      const auto kept = size_t(c.Run(VerifyMethod::kSynthetic).outcome.num_accepted);
      for (size_t depth = 0; depth <= kept; ++depth) ++reached[depth];
    }
    for (size_t depth = 0; depth < 4; ++depth) {
      CAPTURE(depth);
      const double rate = double{rates[std::min<size_t>(depth, 2)]};
      const double n = reached[depth];
      // Six standard errors.
      CHECK(std::fabs(reached[depth + 1] / n - rate) < 6 * std::sqrt(rate * (1 - rate) / n));
    }
  }

  TEST_CASE("no rule accepts a forbidden id, or one of probability 0") {
    std::mt19937_64 random(65);
    const float always = 1;
    const uint32_t allowed = 0b0010110;
    const MaskView mask{.words = &allowed, .num_rows = 1, .row_stride = 1};
    std::vector<PlaceEdits> places(kNodes + 1);
    for (PlaceEdits& place : places) place.mask_row = 0;
    size_t num_accepted = 0;
    for (int trial = 0; trial < 500; ++trial) {
      CAPTURE(trial);
      LossyCase c(random, trial % 2 == 0);
      c.rule = {.epsilon = 0, .delta = 0, .single = 0, .acc = 0};
      c.rule.num_best = kVocab;
      c.rule.rates = &always;
      c.rule.num_rates = 1;
      for (const VerifyMethod method : {VerifyMethod::kTypical, VerifyMethod::kRelaxed,
                                        VerifyMethod::kThreshold, VerifyMethod::kSynthetic}) {
        if (method == VerifyMethod::kRelaxed) c.rule.delta = 1;
        const ChainResult result = c.Run(method, places, mask);
        CHECK(result.outcome.status == OutcomeStatus::kOk);
        for (const TokenId token : result.tokens) CHECK((allowed >> token & 1) == 1);
        num_accepted += result.path.size();
      }
    }
    CHECK(num_accepted > 300);
  }

  TEST_CASE("relaxed_thinking: outside a thought nothing but the token of the place stands") {
    std::mt19937_64 random(66);
    int num_differ = 0;
    for (int trial = 0; trial < 200; ++trial) {
      CAPTURE(trial);
      LossyCase c(random, true);
      c.rule.num_best = kVocab;
      c.rule.delta = 1;
      const ChainResult everywhere = c.Run(VerifyMethod::kRelaxed);
      CHECK(everywhere.outcome.num_accepted == kNodes);
      c.rule.only_thoughts = true;
      std::vector<PlaceEdits> places(kNodes + 1);
      CHECK(c.Run(VerifyMethod::kRelaxed, places) == c.Run(VerifyMethod::kExactMatch));
      CHECK(c.Run(VerifyMethod::kRelaxed) == c.Run(VerifyMethod::kExactMatch));
      for (int32_t i = 0; i < 3; ++i) places[size_t(i)].in_thought = true;
      const ChainResult inside = c.Run(VerifyMethod::kRelaxed, places);
      CHECK(inside.outcome.num_accepted >= 3);
      num_differ += inside.outcome.num_accepted < kNodes;
      for (PlaceEdits& place : places) place.in_thought = true;
      CHECK(c.Run(VerifyMethod::kRelaxed, places) == everywhere);
    }
    CHECK(num_differ > 100);
  }
}

}  // namespace
}  // namespace specd
