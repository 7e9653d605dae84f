// Sums of the doctor's figures: a mean with its standard error, and acceptance beside what was
// expected.
//
// Plain data; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "daemon/trace/draw_evidence.h"

namespace specd::replay {

// The doctor speaks of a fault if a figure is further from its expectation than this many standard
// errors. A right figure is that far in about 1 of 16,000 traces.
inline constexpr double kSigmas = 4;
// Fewer terms are worth no sentence.
inline constexpr uint64_t kCountMin = 50;

struct MeanSum {
  uint64_t count = 0;
  double sum = 0;
  double squares = 0;
  double largest = 0;

  void Add(double x) {
    ++count;
    sum += x;
    squares += x * x;
    largest = std::max(largest, x);
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  // The standard error of the mean.
  double error() const {
    if (count < 2) return 0;
    const double n = count;
    return std::sqrt(std::max(squares / n - mean() * mean(), 0.0) / (n - 1));
  }
  // The sum over the root of the squares' sum. If x and -x are equally likely, it is above z with a
  // probability of at most exp(-z^2 / 2) for any number of terms.
  double SymmetricZ() const { return squares > 0 ? sum / std::sqrt(squares) : 0; }
  // The distance of the mean from `expected` in standard errors.
  double z(double expected) const { return error() > 0 ? (mean() - expected) / error() : 0; }
  // The same for a mean of numbers that are 0 or more and may rarely be large. Such a mean is often
  // too small, because the large ones have not come up yet: the largest is therefore counted four
  // more times if the mean is below `expected`.
  double GuardedZ(double expected) const {
    if (mean() >= expected || count == 0) return z(expected);
    MeanSum with = *this;
    for (int i = 0; i < 4; ++i) with.Add(largest);
    return std::min(with.z(expected), 0.0);
  }
};

// Evidence that numbers of 0 or more have a mean above 1. If each has an expectation of at most 1
// given those before it, so has each product of 1 + b (x - 1). The mean of the products over some b
// is then above c with a probability of at most 1 / c (Ville's inequality), however many numbers
// there are and however heavy their tail is.
class AboveOne {
 public:
  void Add(double x) {
    // Less by what fp32 rows may round.
    const double gain = x * (1 - 1e-6) - 1;
    for (size_t k = 0; k < kBets.size(); ++k) logs_[k] += std::log1p(kBets[k] * gain);
  }
  // ln of the mean product.
  double log_evidence() const {
    const double best = *std::max_element(logs_.begin(), logs_.end());
    double sum = 0;
    for (const double log : logs_) sum += std::exp(log - best);
    return best + std::log(sum / static_cast<double>(kBets.size()));
  }

 private:
  static constexpr std::array<double, 7> kBets = {.01, .02, .05, .1, .25, .5, .9};
  std::array<double, kBets.size()> logs_ = {};
};

// Draft tokens that were judged, each with the probability that it had to be accepted, if that is
// known.
struct AcceptanceSum {
  uint64_t count = 0;
  double accepted = 0;
  // Of the tokens whose probability is known.
  uint64_t num_known = 0;
  double accepted_of_known = 0;
  double expected = 0;
  double variance = 0;

  void Add(bool is_accepted, std::optional<double> probability) {
    ++count;
    accepted += is_accepted ? 1 : 0;
    if (!probability) return;
    ++num_known;
    accepted_of_known += is_accepted ? 1 : 0;
    expected += *probability;
    variance += *probability * (1 - *probability);
  }
  void Add(const AcceptanceSum& other) {
    count += other.count;
    accepted += other.accepted;
    num_known += other.num_known;
    accepted_of_known += other.accepted_of_known;
    expected += other.expected;
    variance += other.variance;
  }
  double rate() const { return count == 0 ? 0 : accepted / static_cast<double>(count); }
  double rate_of_known() const {
    return num_known == 0 ? 0 : accepted_of_known / static_cast<double>(num_known);
  }
  double expected_rate() const {
    return num_known == 0 ? 0 : expected / static_cast<double>(num_known);
  }
  // The standard error of the rate, if each token is accepted with its probability.
  double error() const {
    return num_known == 0 ? 0 : std::sqrt(variance) / static_cast<double>(num_known);
  }
  double z() const { return BernsteinZ(accepted_of_known - expected, variance, 1); }
};

}  // namespace specd::replay
