// RoundScratch is the memory of one round between a verifier and its backend: tasks with their
// places, and room for their answers. The limits size it once; a round uses it from the front.
// Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/round.h"
#include "speculative/params/params.h"
#include "speculative/processors/fixed_list.h"
#include "speculative/round/host_trees.h"
#include "speculative/round/mask_filler.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

inline constexpr size_t kScoresPerTokenMax = 1 + size_t{kLogprobsMax} + kLogprobTokenIdsMax;

struct RoundScratch {
  explicit RoundScratch(const BackendLimits& limits)
      : max_output(limits.max_output()),
        num_places_max(limits.max_draft + 1),
        tasks(static_cast<size_t>(limits.max_batch)),
        task_results(tasks.size()),
        sequences(tasks.size()),
        outcomes(tasks.size()),
        tokens(tasks.size() * static_cast<size_t>(max_output)),
        path(tokens.size()),
        places(tasks.size() * static_cast<size_t>(num_places_max)),
        host_drafts(tasks.size() * static_cast<size_t>(limits.max_draft)),
        host_trees(limits),
        scores(tokens.size() * kScoresPerTokenMax) {
    draft_reads.reserve(tasks.size());
    mask_jobs.reserve(tasks.size());
  }

  PlaceEdits* PlacesOf(size_t task) { return &places[task * static_cast<size_t>(num_places_max)]; }
  const TokenId* TokensOf(size_t task) const {
    return &tokens[task * static_cast<size_t>(max_output)];
  }
  TokenId* HostDraftOf(size_t input) {
    return host_drafts.data() + input * static_cast<size_t>(num_places_max - 1);
  }
  const int32_t* PathOf(size_t task) const { return &path[task * static_cast<size_t>(max_output)]; }

  // A backend leaves the scores of tokens a batch-wide stride apart. This moves the scores of one
  // task's first tokens together and returns them.
  const TokenScore* CompactScores(size_t task, int32_t num_tokens, int32_t scores_per_token) {
    TokenScore* first = scores.data() + static_cast<int64_t>(task) * max_output * scores_stride;
    for (int32_t j = 1; j < num_tokens && scores_per_token < scores_stride; ++j) {
      std::memmove(first + j * scores_per_token, first + j * scores_stride,
                   static_cast<size_t>(scores_per_token) * sizeof(TokenScore));
    }
    return first;
  }

  int32_t max_output;      // tokens, path nodes and rows of scores of one task
  int32_t num_places_max;  // places of one task
  std::vector<Task> tasks;
  std::vector<uint32_t> task_results;  // task i answers results[task_results[i]]
  // The sequence of each task. The pointers are valid until sequences are opened or closed, so
  // staged rounds do not use them.
  std::vector<Sequence*> sequences;
  int32_t num_tasks = 0;
  bool is_staged = false;                  // the round waits for a replay of the engine's graph
  std::vector<MaskFiller::Job> mask_jobs;  // of the tasks whose sequences have a constraint
  size_t num_filled = 0;                   // of mask_jobs
  uint64_t num_discarded = 0;              // inputs without a task because they are discarded
  std::vector<TaskOutcome> outcomes;
  std::vector<TokenId> tokens;
  std::vector<int32_t> path;
  std::vector<PlaceEdits> places;
  // Draft tokens by slot that the host must know, max_draft for each input, and their copies.
  std::vector<TokenId> host_drafts;
  std::vector<TokenRowRead> draft_reads;
  HostTrees host_trees;          // of the same drafts
  FixedList<TokenScore> scores;  // memory that is never asked for is never touched
  int32_t scores_stride = 0;     // of the current round
};

}  // namespace specd
