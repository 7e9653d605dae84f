// RoundTests sums what decisions alone tell, without rows: whether p / q and the residuals are
// those of the declared q, and whether the coins are those that specd compares.
//
// One thread.
#pragma once

#include "tools/replay/doctor/judged_draft.h"
#include "tools/replay/doctor/sums.h"

namespace specd::replay {

class RoundTests {
 public:
  // `is_whole`: q has all ids, so that the mean of p / q is 1 if q is right.
  void Take(const TraceTask& task, const std::vector<JudgedDraft>& judged, bool is_whole);

  // What passed its coin, against the share that the coin was compared with.
  const AcceptanceSum& passed() const { return passed_; }
  // p / q at drawn ids: 1 if q is right and whole, and less if it is right and leaves ids out.
  const MeanSum& ratio() const { return ratio_; }
  const MeanSum& whole_ratio() const { return whole_ratio_; }
  // `token`: 1 / (the residual's mass) after a rejection, else 0. If q is right, the mean is at
  // most 1: nearly 1 where rejections come up, and 0 where p and q are so near that none does.
  const MeanSum& residuals() const { return residuals_; }
  // One of the two means is above 1: the drafts were not drawn from the declared q.
  bool IsWrong() const;
  // p / q is small at the drafts. Either they were not drawn from q, or q leaves ids out in a way
  // that no decision says, such as -inf in rows of all ids, or its large values did not come up.
  bool IsSuspect() const;

 private:
  AcceptanceSum passed_;
  MeanSum ratio_;
  MeanSum whole_ratio_;
  MeanSum residuals_;
  AboveOne ratio_above_;
  AboveOne residuals_above_;
};

}  // namespace specd::replay
