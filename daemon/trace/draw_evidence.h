// DrawEvidence says whether draft ids were drawn from the q that their engine declared, and if not,
// from what else.
//
// It holds a list of other ways to draw: another temperature, other filters, another row. Each way
// has a likelihood ratio to the declared q. If the declared q is right, the expectation of each
// ratio is 1 after any number of draws, however heavy its tail is. The mean of the ratios is
// therefore above c with a probability of at most 1 / c (Ville's inequality), at any number of
// looks and for all ways together. A sum with a known variance completes it. One thread.
//
//   DrawEvidence test(vocab_size);
//   test.Add({.id = x, .scale = scale, .filters = filters}, read_row);
//   if (test.log_evidence() > kLogEvidence4Sigma) Warn(test.Sentence());
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/round.h"

namespace specd {

// ln(1 / P(|Z| > 4)) of a standard normal Z.
inline constexpr double kLogEvidence4Sigma = 9.67;

// A sum's distance from its expectation in standard errors. One term differs from its expectation
// by at most `largest`. Few rare terms make a sum that is far from normal: the distance is less by
// what Bernstein's inequality asks for them, so that 4 is as rare as for a normal sum.
inline double BernsteinZ(double difference, double variance, double largest) {
  const double scale = variance + largest * std::abs(difference) / 3;
  return scale > 0 ? difference / std::sqrt(scale) : 0;
}

// The sum of x - E(x) over draws, and of the variances.
struct ZSum {
  uint64_t count = 0;
  double difference = 0;
  double variance = 0;
  double largest = 0;

  // `most`: |x - E(x)| is never larger, for any x that may come.
  void Add(double x, double mean, double var, double most) {
    ++count;
    difference += x - mean;
    variance += var > 0 ? var : 0;
    largest = std::max(largest, most);
  }
  double z() const { return BernsteinZ(difference, variance, largest); }
};

// A way to draw. `value` is a temperature relative to the declared one, or the filter's number.
struct DrawWay {
  enum class Kind : uint32_t {
    kTemperature,
    kArgmax,
    kTopK,
    kTopP,
    kMinP,
    kUnfiltered,      // without the declared filters
    kFewIds,          // from fewer ids than q covers
    kPlaceBefore,     // from the row that was declared for the place before
    kPlaceAfter,      // for the place after it
    kSequenceBefore,  // for the sequence before it in the round
    kSequenceAfter,
  };
  static constexpr size_t kNumKinds = 11;
  Kind kind = Kind::kTemperature;
  double value = 1;
};

struct DrawnId {
  TokenId id = 0;
  float scale = 0;  // log2(e) / the declared temperature
  Filters filters;  // as declared
  // Ids that an earlier sibling or a one-hot one has taken (kSampledRest); they have no q.
  std::span<const TokenId> without = {};
  // The q that was declared for other places; empty: not known.
  std::span<const float> place_before = {};
  std::span<const float> place_after = {};
  std::span<const float> sequence_before = {};
  std::span<const float> sequence_after = {};
};

class DrawEvidence {
 public:
  // Fills `out` of each transform from the draft row. An error: the row is bad.
  using ReadRow = std::function<absl::Status(std::span<RowTransform>)>;

  explicit DrawEvidence(int32_t vocab_size);

  absl::Status Add(const DrawnId& drawn, const ReadRow& read);

  // The last draw's q as declared, and at the temperature number k of Temperatures().
  std::span<const float> q() const { return Row(0); }
  std::span<const float> TemperedQ(size_t k) const { return Row(kFirstTemperature + k); }
  static std::span<const double> Temperatures();

  uint64_t num_draws() const { return num_draws_; }
  // ln of the mean ratio. Above kLogEvidence4Sigma the declared q is wrong.
  double log_evidence() const;
  // ln q of the drafted ids against the entropy.
  const ZSum& log_q() const { return log_q_; }
  bool IsWrong() const;
  // The same from the ratios alone, so that any number of looks may be taken.
  bool IsWrongAtAnyLook() const;
  // The likeliest way; empty: none is likelier than the declared q by a factor of 1000.
  std::optional<DrawWay> Best() const;
  // What is wrong and its remedy, without a full stop before the numbers.
  std::string Sentence() const;

 private:
  static constexpr size_t kFirstTemperature = 2;

  std::span<const float> Row(size_t row) const {
    return {rows_.data() + row * static_cast<size_t>(vocab_size_),
            static_cast<size_t>(vocab_size_)};
  }
  absl::Status ReadRows(const DrawnId& drawn, const ReadRow& read);
  bool HasImpossible() const;
  void AddFigures(TokenId id);
  void AddSeen(TokenId id, double q);
  void AddRatio(size_t way, double q_of_way, double q);

  const int32_t vocab_size_;
  std::vector<DrawWay> ways_;
  std::vector<double> logs_;  // ln of each way's ratio
  std::vector<float> rows_;   // declared, unfiltered, then those of the ways that transform it
  std::vector<RowTransform> transforms_;
  std::vector<uint8_t> is_seen_;
  double expected_new_ = 0;
  uint64_t num_new_ = 0;
  uint64_t num_draws_ = 0;
  // Ids with q = 0 even without filters: no draw from the row gives them.
  uint64_t num_impossible_ = 0;
  double scale_sum_ = 0;
  ZSum log_q_;
};

}  // namespace specd
