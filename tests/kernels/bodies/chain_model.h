// ChainModel gives tests of several rounds a target and a drafter whose rows depend on the whole
// text so far.
//
// It has the raw rows for a kernel, and the distributions that the oracle computes from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "kernels/core/round.h"
#include "tests/support/rows.h"
#include "tools/oracle/oracle.h"

namespace specd {

using Tokens = std::vector<TokenId>;

inline Tokens Concatenate(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct ModelOptions {
  VerifyMethod method = VerifyMethod::kToken;
  int32_t vocab_size = 3;
  int32_t max_draft = 2;
  size_t length = 4;           // tokens of the text whose joint law is compared
  bool powers_of_two = false;  // thresholds are exact: coins lie one beside them
  // By place; the last one also for later places.
  std::vector<DraftKind> kinds = {DraftKind::kSampled};
  // The draft is a tree; kinds are those of its nodes. Empty: a chain.
  std::vector<int> parents = {};
  bool ragged = false;  // the text decides the number of drafts
  bool strays = false;  // sometimes the drafter names an id outside the vocabulary (one-hot only)
  bool wide = false;    // the drafter's vocabulary is wider: it draws kOutside of its tokens there
  bool edits = false;   // steps 1 to 6 on the target's rows
  bool draft_edits = false;  // the same on the drafter's rows
  bool side_channel = false;
  bool library_drafts = false;  // specd_sample draws the drafts, with the sequence's own seed
  oracle::Truncation target_truncation = {};
  oracle::Truncation draft_truncation = {};
  // Rows that are the same for every text, instead of random ones.
  oracle::Probabilities fixed_target = {};
  oracle::Probabilities fixed_draft = {};
  bool exact = false;  // fixed rows are not rounded; the kernel does not run
  uint64_t seed = 0;
};

class ChainModel {
 public:
  // Logits are base-2 logarithms, so that powers of two are exact at scale 1.
  static constexpr double kTemperature = 1.4426950408889634;  // 1 / ln 2

  struct Place {
    oracle::Logits target;
    oracle::Logits draft;
    oracle::Steps steps;
    oracle::Probabilities p;
    oracle::Probabilities q;           // the draft token's law
    oracle::Probabilities q_unedited;  // q without steps 1 to 6
  };

  explicit ChainModel(const ModelOptions& options) : options_(options) {}

  const ModelOptions& options() const { return options_; }

  // The place after `context`, the kept text and the draft prefix.
  const Place& At(const Tokens& context) {
    auto [entry, is_new] = places_.try_emplace(context);
    if (is_new) Fill(context, &entry->second);
    return entry->second;
  }

  DraftKind KindAt(size_t i) const {
    return options_.kinds[std::min(i, options_.kinds.size() - 1)];
  }

  // The share of a wide drafter's tokens that lie outside the vocabulary.
  static constexpr double kOutside = 0.4;

  // The ends of the intervals of coins that draw each id. A wide drafter's last one is outside.
  std::vector<double> DraftEnds(const Tokens& context) {
    std::vector<double> ends = oracle::IntervalEnds(At(context).q);
    if (!options_.wide) return ends;
    for (double& end : ends) end *= 1 - kOutside;
    ends.push_back(1);
    return ends;
  }

  // The token that a drafter names for its draw.
  TokenId Named(TokenId drawn, size_t i) const {
    const bool stray = options_.strays && KindAt(i) == DraftKind::kOneHot && drawn == 0;
    return stray ? options_.vocab_size + 2 : drawn;
  }
  bool IsOutside(TokenId token) const { return token < 0 || token >= options_.vocab_size; }

  size_t NumDrafts(const Tokens& text) const {
    const auto max_draft = size_t(options_.max_draft);
    return options_.ragged ? Hash(text) / 7 % (max_draft + 1) : max_draft;
  }

  double TargetProbability(const Tokens& text) {
    double probability = 1;
    for (size_t i = 0; i < text.size(); ++i) {
      probability *= At(Tokens(text.begin(), text.begin() + int64_t(i))).p[text[i]];
    }
    return probability;
  }

  static uint64_t Hash(const Tokens& context) {
    uint64_t hash = 1469598103934665603u;
    for (const TokenId token : context) hash = (hash ^ uint64_t(token + 1)) * 1099511628211u;
    return hash;
  }

 private:
  void Fill(const Tokens& context, Place* place) const {
    std::seed_seq seed{options_.seed, uint64_t(context.size()), Hash(context)};
    std::mt19937_64 random(seed);
    const auto row_of = [&](const oracle::Probabilities& fixed) {
      oracle::Logits row = fixed.empty() ? RandomRow(random) : oracle::LogOf(fixed);
      for (double& x : row) x = RoundTo(DType::kFloat32, fixed.empty() ? x : x * kTemperature);
      return row;
    };
    place->target = row_of(options_.fixed_target);
    place->draft = row_of(options_.fixed_draft);
    if (options_.edits) place->steps = RandomSteps(context, {place->target, place->draft}, random);
    place->p = *oracle::Distribution(place->target, place->steps, kTemperature,
                                     options_.target_truncation);
    place->q_unedited =
        *oracle::Distribution(place->draft, {}, kTemperature, options_.draft_truncation);
    place->q =
        *oracle::Distribution(place->draft, options_.draft_edits ? place->steps : oracle::Steps{},
                              kTemperature, options_.draft_truncation);
    if (options_.exact) {
      place->p = options_.fixed_target;
      place->q = options_.fixed_draft;
    }
  }

  // Probabilities that are powers of two and sum to one: a probability is halved until there are
  // enough. Sometimes an id has probability 0.
  oracle::Logits RandomRow(std::mt19937_64& random) const {
    const bool has_zero = options_.vocab_size > 2 && random() % 3 == 0;
    std::vector<double> p{1.0};
    while (p.size() < size_t(options_.vocab_size) - (has_zero ? 1 : 0)) {
      const size_t split = random() % p.size();
      p[split] /= 2;
      p.push_back(p[split]);
    }
    if (has_zero) p.push_back(0);
    std::shuffle(p.begin(), p.end(), random);
    oracle::Logits logits;
    for (const double x : p) {
      // With edits, logits are positive and negative, for the repetition penalty.
      const double noise = options_.powers_of_two ? 0 : double(random() % 1000) / 500;
      logits.push_back(RoundTo(DType::kFloat32, std::log2(x) + noise));
    }
    return logits;
  }

  // The inputs of steps 1 to 6, as a function of the context.
  oracle::Steps RandomSteps(const Tokens& context, const std::vector<oracle::Logits>& rows,
                            std::mt19937_64& random) const {
    const int vocab_size = options_.vocab_size;
    oracle::Steps steps;
    steps.prompt = {0, 1, 1};
    for (const TokenId token : context) {
      if (token >= 0 && token < vocab_size) steps.output.push_back(token);
    }
    steps.repetition = 1.25;
    steps.frequency = 0.375;
    steps.presence = -0.25;
    steps.bias[1] = 0.5;
    steps.end_ids = {0};
    steps.below_min_tokens = context.size() < 2;
    if (!context.empty() && context.back() == 1) steps.banned.insert(2 % vocab_size);
    if (random() % 9 == 0) steps.forced = static_cast<int>(random() % uint64_t(vocab_size));
    if (random() % 2 == 0) {
      for (int id = 0; id < vocab_size; ++id) steps.mask.push_back(random() % 4 != 0);
    }
    // Both rows must keep some mass.
    const auto is_bad = [&] {
      return !oracle::AfterSteps(rows[0], steps) || !oracle::AfterSteps(rows[1], steps);
    };
    if (is_bad()) steps.banned.clear();
    if (is_bad()) steps.mask.clear();
    if (is_bad()) steps.below_min_tokens = false;
    return steps;
  }

  const ModelOptions options_;
  std::map<Tokens, Place> places_;
};

}  // namespace specd
