// Argmax finds the greedy token of a row for verification.
//
// Argmax is the shortest pass: it reads every element once and computes no exp2.
#pragma once

#include "kernels/bodies/distribution.h"

namespace specd {

// Returns the lowest id among the largest elements (-0 = +0; +inf is an element like any other). If
// the row is bad (it holds a NaN, or no element above -inf), the answer is kNoToken. A forced token
// is the answer without a read of the row.
template <Team T>
SPECD_BODY TokenId Argmax(T& team, const Row& row, const RowWorkspace& workspace) {
  if (row.place.forced != kNoToken) return row.place.forced;
  Row judged = row;
  RowStats stats;
  const float max = ReadAndJudge(team, &judged, 0.0f, false, workspace, &stats);
  if (IsNan(max) || max == -kInfinity) return kNoToken;
  return LowestIdEqualTo(team, judged, stats, max);
}

}  // namespace specd
