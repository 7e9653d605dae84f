// RoundScratch: the memory of one round between a verifier and its backend: tasks with their
// places, and where their answers go. Sized by the limits once; a round takes from the front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/round.h"
#include "speculative/fixed_list.h"
#include "speculative/params.h"

namespace specd {

inline constexpr size_t kScoresPerTokenMax = 1 + size_t{kLogprobsMax} + kLogprobTokenIdsMax;

struct RoundScratch {
  explicit RoundScratch(const BackendLimits& limits)
      : tasks(static_cast<size_t>(limits.max_batch)),
        task_results(tasks.size()),
        outcomes(tasks.size()),
        tokens(tasks.size() * (static_cast<size_t>(limits.max_draft) + 1)),
        places(tokens.size()),
        scores(tokens.size() * kScoresPerTokenMax) {}

  std::vector<ChainTask> tasks;
  std::vector<uint32_t> task_results;  // task i answers results[task_results[i]]
  int32_t num_tasks = 0;
  uint64_t num_discarded = 0;  // inputs that have no task because they were to be discarded
  std::vector<ChainOutcome> outcomes;
  std::vector<TokenId> tokens;  // max_draft + 1 for each task, and as many places
  std::vector<PlaceEdits> places;
  FixedList<TokenScore> scores;  // by address only; what is never asked for is never touched
  int32_t scores_stride = 0;     // of the current round
};

}  // namespace specd
