#include "speculative/sequence/logprob_sum.h"

#include <algorithm>

namespace specd {

LogprobSum::LogprobSum(uint32_t num_given, int64_t max_tokens, double given)
    : enabled_(true),
      value_(given),
      given_(given),
      num_given_(num_given),
      sums_(static_cast<size_t>(std::clamp(max_tokens - num_given, int64_t{1}, kCutTokensMax))) {}

void LogprobSum::Add(float logprob) {
  value_ += static_cast<double>(logprob);
  if (sums_.size() < sums_.capacity()) {
    sums_.push_back(value_);
  } else {
    sums_[num_added_ % sums_.capacity()] = value_;
  }
  ++num_added_;
}

void LogprobSum::CutAt(uint32_t kept_tokens) {
  if (!enabled_) return;
  const uint64_t num_left = kept_tokens > num_given_ ? kept_tokens - num_given_ : 0;
  SPECD_CHECK(num_left <= num_added_);
  if (num_left == 0) {
    // What the given tokens add up to is known for all of them only.
    const bool is_known = given_ == 0 || kept_tokens == num_given_;
    value_ = is_known ? given_ : std::numeric_limits<double>::quiet_NaN();
  } else if (num_added_ - num_left < sums_.capacity()) {
    value_ = sums_[(num_left - 1) % sums_.capacity()];
  } else {
    value_ = std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace specd
