// LogprobSum adds up the logprobs of a sequence's kept tokens, so that a caller can rank samples.
//
// It adds in double, one token after another in the order of the output. The same tokens therefore
// give the same bits, however they were grouped into rounds and wherever the end was cut. A stop
// string cuts tokens away after they were added. A subtraction would round, so the object keeps the
// sum after each of the last kCutTokensMax tokens. All memory is taken when the sequence is opened.
// A copy is independent (FORK). Thread-compatible.
#pragma once

#include <cstdint>
#include <limits>

#include "speculative/processors/fixed_list.h"

namespace specd {

// The longest distance from the newest token at which a cut still finds its sum. It takes 8 MiB of
// address space for a long sequence; only the used part is ever touched. In practice the text side
// is never a million tokens late.
inline constexpr int64_t kCutTokensMax = int64_t{1} << 20;

class LogprobSum {
 public:
  // For a sequence that asked for no logprobs: there is no sum.
  LogprobSum() = default;
  // The sum begins at `given` after num_given tokens; max_tokens includes those tokens.
  LogprobSum(uint32_t num_given, int64_t max_tokens, double given = 0);

  bool enabled() const { return enabled_; }

  void Add(float logprob);

  // Ends the output after its first kept_tokens tokens. Nothing is added later.
  void CutAt(uint32_t kept_tokens);

  size_t size_bytes() const { return sums_.capacity_bytes(); }

  // NaN if there is no sum: the sequence asked for none, a logprob was NaN, or a cut was further
  // back than kCutTokensMax or than tokens whose sum was given.
  double value() const { return value_; }

 private:
  bool enabled_ = false;
  double value_ = std::numeric_limits<double>::quiet_NaN();
  double given_ = 0;
  uint32_t num_given_ = 0;
  uint64_t num_added_ = 0;
  FixedList<double> sums_;  // the sum after token i is at i % capacity
};

}  // namespace specd
