// LogprobSum: the sum of the logprobs of a sequence's kept tokens, by which a caller ranks samples.
//
// Added up in double, one token after another in the order of the output, so that the same tokens
// give the same bits however they were grouped into rounds and wherever the end was cut. A stop
// string cuts tokens away after they were added; a difference would round, so the sum behind each
// of the last kCutTokensMax tokens is kept. All memory is taken when the sequence is opened. A copy
// is independent (FORK). Thread-compatible.
#pragma once

#include <cstdint>
#include <limits>

#include "speculative/fixed_list.h"

namespace specd {

// How far behind the newest token a cut still finds its sum: 8 MiB of a long sequence, of which
// only what is used is ever touched. The text side is never a million tokens late in practice.
inline constexpr int64_t kCutTokensMax = int64_t{1} << 20;

class LogprobSum {
 public:
  // Of a sequence that asked for no logprobs: there is no sum.
  LogprobSum() = default;
  // The sum begins at 0 behind num_given tokens; max_tokens counts those too.
  LogprobSum(uint32_t num_given, int64_t max_tokens);

  bool enabled() const { return enabled_; }

  void Add(float logprob);

  // The output ends behind its first kept_tokens tokens; nothing is added any more.
  void CutAt(uint32_t kept_tokens);

  // NaN where there is none: not asked for, a logprob that was NaN, or a cut further back than
  // kCutTokensMax.
  double value() const { return value_; }

 private:
  bool enabled_ = false;
  double value_ = std::numeric_limits<double>::quiet_NaN();
  uint32_t num_given_ = 0;
  uint64_t num_added_ = 0;
  FixedList<double> sums_;  // behind token i, at i % capacity
};

}  // namespace specd
