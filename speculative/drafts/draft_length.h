// DraftLength chooses how many tokens a drafter drafts next, from what earlier rounds kept.
//
// The rule estimates the share of judged draft tokens that stand, and takes the length with the
// most tokens for the time of a round (Leviathan et al. 2023, theorem 3.8). It knows nothing of the
// draft that it chooses the length of, so every method stays lossless: docs/ALGORITHMS.md, "The
// length of a draft". Not thread-safe; one object for each sequence, or one for all of them.
//
//   DraftLength rule({.step_cost = 0.05});
//   for (;;) { draft rule.Next() tokens; ...; rule.Observe(num_drafts, num_accepted); }
#pragma once

#include <cstdint>

namespace specd {

struct DraftLengthOptions {
  int32_t min_length = 1;  // 0 would never learn that drafts stand again
  int32_t max_length = 8;
  int32_t memory = 32;     // rounds: older ones count less
  double step_cost = 0.1;  // the time of one draft token, over that of a round without a draft
};

// Draft tokens that were judged, and those of them that stood; older rounds count less. Before
// anything was seen, four of five are taken to stand, with the weight of one round.
struct JudgedDrafts {
  double judged = 5;
  double accepted = 4;
};

class DraftLength {
 public:
  // REQUIRES: record.judged > 0, 0 <= min_length <= max_length, memory >= 1, step_cost >= 0.
  explicit DraftLength(const DraftLengthOptions& options, const JudgedDrafts& record = {})
      : options_(options), record_(record) {}

  // A round kept num_accepted of a draft with num_drafts tokens on its path. In a chain the token
  // after the accepted ones was judged too, and fell.
  void Observe(int32_t num_drafts, int32_t num_accepted);
  int32_t Next() const;
  const JudgedDrafts& record() const { return record_; }

 private:
  DraftLengthOptions options_;
  JudgedDrafts record_;
};

}  // namespace specd
