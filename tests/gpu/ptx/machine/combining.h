// Max and Min are what "atom", "red" and "redux" make of two values, beside the operators of
// <functional>. Pure functions.
#pragma once

#include <algorithm>

namespace specd::ptx {

struct Max {
  template <typename Value>
  Value operator()(Value a, Value b) const {
    return std::max(a, b);
  }
};
struct Min {
  template <typename Value>
  Value operator()(Value a, Value b) const {
    return std::min(a, b);
  }
};

}  // namespace specd::ptx
