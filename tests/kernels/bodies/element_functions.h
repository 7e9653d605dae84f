// WeightBelow, Equals and their kin are element functions of the kinds that bodies use, for
// teams_test.
//
// They are written here so that primitives are tested without the bodies' own functions. Pure.
#pragma once

#include "kernels/bodies/team.h"

namespace specd {

struct WeightBelow {
  float max;
  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    return Exp2((x - max) * 1.25f);
  }
};
struct DifferenceOfWeights {
  WeightBelow p;
  WeightBelow q;
  template <typename Value>
  SPECD_INLINE Value operator()(Value x, Value y) const {
    return PositivePart(0.01f * p(x) - 0.013f * q(y));
  }
};
struct Equals {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x == value;
  }
};
struct AtMost {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x <= value;
  }
};
// Gives -inf a value, so that it shows where it is applied.
struct Bent {
  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    return Select(x > -100.0f, x * 0.5f, 3.0f);
  }
};

}  // namespace specd
