// What passes over the elements of a row count, keep and add up to find a cut, for a float and for
// a vector of them alike. Plain data.
#pragma once

#include "kernels/bodies/distribution.h"

namespace specd {

struct AtLeast {
  float pivot;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x >= pivot;
  }
};

struct Between {
  float low;
  float high;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return (x >= low) & (x < high);
  }
};

struct BelowOnly {
  float high;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Select(x < high, x, Value(-kInfinity));
  }
};

struct WeightAtLeast {
  WeightFunction weight;
  float pivot;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Select(x >= pivot, weight(x), Value(0.0f));
  }
};

// 1 where an element equals a value: with exponent 0 that is the integer 2^40.
struct OneWhereEqual {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Select(x == value, Value(1.0f), Value(0.0f));
  }
};

}  // namespace specd
