// The oracle: what the papers say, in double precision and the most obvious way.
//
// Leviathan et al. 2023 and Chen et al. 2023 for chains. Nothing here shares code or formulas with
// the kernels: probabilities are normalised vectors, exponentials are std::exp, and every function
// is a loop over the vocabulary. Pure functions.
#pragma once

#include <optional>
#include <vector>

namespace specd::oracle {

using Probabilities = std::vector<double>;

// softmax(logits / temperature). A row with a NaN, or without anything above -inf, has none; with
// +inf in it, all probability is on the first such id.
std::optional<Probabilities> Softmax(const std::vector<double>& logits, double temperature);

// The first of the largest; nothing for rows that have no softmax.
std::optional<int> Argmax(const std::vector<double>& logits);

// The probability of one id; 0 outside the vocabulary.
double ProbabilityOf(const Probabilities& p, int id);

// All probability on one id; none anywhere if the id is outside the vocabulary.
Probabilities OneHot(int id, size_t vocab_size);

// min(1, p(x) / q(x)), and 0 where p(x) = 0.
double AcceptProbability(const Probabilities& p, const Probabilities& q, int x);

// (p - q)+ normalised; nothing where no mass is left.
std::optional<Probabilities> Residual(const Probabilities& p, const Probabilities& q);

// ends[i] is the upper end of the interval of coins that the inverse CDF maps to id i.
std::vector<double> IntervalEnds(const Probabilities& p);

}  // namespace specd::oracle
