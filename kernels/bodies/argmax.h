// Argmax finds the greedy token of a row for verification.
//
// Argmax is the shortest pass: it reads every element once and computes no exp2.
#pragma once

#include "kernels/bodies/distribution.h"

namespace specd {

// The greedy token of a row. If the row is bad, `token` is kNoToken and `fault` says why.
struct GreedyToken {
  TokenId token = kNoToken;
  RowFault fault = RowFault::kNone;
};

// Finds the lowest id among the largest elements (-0 = +0; +inf is an element like any other). A
// forced token is the answer without a read of the row.
template <Team T>
SPECD_INLINE GreedyToken Argmax(T& team, const Row& row, const RowWorkspace& workspace) {
  if (row.place.forced != kNoToken) return {row.place.forced};
  Row judged = row;
  RowStats stats;
  const JudgedMax read = ReadAndJudge(team, &judged, 0.0f, false, workspace, &stats);
  if (read.fault != RowFault::kNone) return {kNoToken, read.fault};
  const TokenId token = LowestIdEqualTo(team, judged, stats, read.max);
  return {token, token == kNoToken ? RowFault::kChanged : RowFault::kNone};
}

}  // namespace specd
