// The cut functions count, keep and sum the elements of a row for CutSearch.
//
// Each works on a float and on a vector of floats. Plain data.
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

// Halves the values, which probably halves the elements, or the floats in between. If every second
// step halves the floats, no bracket takes more than 64 steps.
SPECD_INLINE float MiddleOf(const Between& bracket, bool by_value) {
  if (by_value) {
    const float middle = bracket.low + (bracket.high - bracket.low) * 0.5f;
    if (middle > bracket.low && middle < bracket.high) return middle;
  }
  const uint32_t low_key = OrderedKey(bracket.low);
  return FloatOfKey(low_key + (OrderedKey(bracket.high) - low_key) / 2);
}

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

struct WeightBetween {
  WeightFunction weight;
  Between bracket;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Select(bracket(x), weight(x), Value(0.0f));
  }
};

// The same for weights that were computed before.
struct KnownWeightBetween {
  Between bracket;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x, Value weight) const {
    return Select(bracket(x), weight, Value(0.0f));
  }
};

// 1 if an element equals the value. With exponent 0 that is the integer 2^40.
struct OneWhereEqual {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Select(x == value, Value(1.0f), Value(0.0f));
  }
};

}  // namespace specd
