// The names of the verification methods, as parameters, lists and traces show them.
//
// Constants, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "kernels/core/types.h"

namespace specd {

// The index is the value of VerifyMethod.
inline constexpr std::array<std::string_view, 12> kMethodNames = {
    "auto",      "greedy",      "exact_match", "token",   "block",     "tree",
    "traversal", "target_only", "typical",     "relaxed", "threshold", "synthetic"};
static_assert(kMethodNames.size() == static_cast<size_t>(kLastMethod) + 1);

}  // namespace specd
