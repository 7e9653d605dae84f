// The oracle computes the rules of the papers and the contract for tests, in double precision and
// in the most obvious way.
//
// Leviathan et al. 2023 and Chen et al. 2023 for chains, Sun et al. 2025 for blocks, CONTRACT §3
// for the steps of a row. The oracle shares no code and no formula with the kernels: rows are dense
// vectors, probabilities are normalised, exponentials are std::exp. Every function is a loop over
// the vocabulary. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace specd::oracle {

using Probabilities = std::vector<double>;
using Logits = std::vector<double>;

// softmax(logits / temperature). A row with a NaN, or without an element above -inf, has none. If
// +inf is in the row, all probability is on the first such id.
std::optional<Probabilities> Softmax(const Logits& logits, double temperature);

// The first of the largest; none for rows without a softmax.
std::optional<int> Argmax(const Logits& logits);

// The probability of one id; 0 outside the vocabulary.
double ProbabilityOf(const Probabilities& p, int id);

// All probability on one id; no probability at all if the id is outside the vocabulary.
Probabilities OneHot(int id, size_t vocab_size);

// ---- the steps of a row (CONTRACT §3) -----------------------------------------------------------

// Logits as the engine means them: cap * tanh(x * scale / cap), or without a cap x * scale.
// Infinities stay, so ids that the engine masked stay masked.
Logits ScaledAndCapped(const Logits& row, double scale, double cap);

// Probabilities enter as ln p.
Logits LogOf(const Probabilities& p);

// Steps 1 to 6 for one row. `output` holds the kept tokens and the draft prefix.
struct Steps {
  std::vector<bool> mask = {};     // the grammar's mask; empty: none
  std::vector<bool> allowed = {};  // allowed_token_ids; empty: all
  std::set<int> disallowed = {};
  std::map<int, double> bias = {};
  std::set<int> end_ids = {};  // EOS and stop ids
  bool below_min_tokens = false;
  double repetition = 1;
  double frequency = 0;
  double presence = 0;
  std::vector<int> prompt = {};
  std::vector<int> output = {};
  std::set<int> banned = {};  // by bad words and processors
  std::optional<int> forced = {};
};

// The row after step 6: its argmax is the greedy token. If the ids that step 1 allows make the row
// bad, there is none.
std::optional<Logits> AfterSteps(const Logits& row, const Steps& steps);

// Steps 9 to 11.
struct Truncation {
  double min_p = 0;
  int top_k = 0;  // <= 0: off
  double top_p = 1;
  bool joint = false;
};

// The ids that every filter keeps. Order for top_k and top_p: value descending, id ascending.
// REQUIRES: the row has a softmax.
std::vector<bool> Survivors(const Logits& logits, double temperature, const Truncation& truncation);

// Steps 1 to 11: the distribution for sampling.
std::optional<Probabilities> Distribution(const Logits& row, const Steps& steps, double temperature,
                                          const Truncation& truncation);

// ---- logprobs -----------------------------------------------------------------------------------

// ln of probabilities; -inf for probability 0.
Logits Logprobs(const Probabilities& p);

// 1 + the number of ids with a strictly greater value.
int RankOf(const std::vector<double>& values, int id);

// The `count` best ids above -inf: value descending, id ascending.
std::vector<int> TopIds(const std::vector<double>& values, int count);

// ---- verification (CONTRACT §5) -----------------------------------------------------------------

// min(1, p(x) / q(x)), and 0 if p(x) = 0.
double AcceptProbability(const Probabilities& p, const Probabilities& q, int x);

// (a p - q)+ normalised; none if no mass is left.
std::optional<Probabilities> Residual(const Probabilities& p, const Probabilities& q, double a = 1);

// Block verification of a chain of K drafts: p has K + 1 rows, q has K.
//   P_0 = 1, P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)), S_i = sum (P_i p_{i+1} - q_{i+1})+,
//   h_K = P_K, h_i = S_i / (S_i + 1 - P_i), or 1 if the denominator is not positive; h_0 = 1.
// The largest i with u_i < h_i is the number of accepted drafts.
struct Block {
  std::vector<double> path;      // P_0 .. P_K
  std::vector<double> residual;  // S_0 .. S_{K-1}
  std::vector<double> accept;    // h_0 .. h_K
};
Block BlockOf(const std::vector<Probabilities>& p, const std::vector<Probabilities>& q,
              const std::vector<int>& draft);

// ends[i] is the upper end of the interval of coins that the inverse CDF maps to id i.
std::vector<double> IntervalEnds(const Probabilities& p);

// True if the coin u in [0, 1) draws the id, or if a coin within `slack` of it does.
bool IsDraw(const Probabilities& p, int id, double u, double slack);

}  // namespace specd::oracle
