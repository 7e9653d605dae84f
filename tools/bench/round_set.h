// RoundSet holds the rounds of one measurement, ready to run in turn.
//
// A cold measurement has several rounds over different rows, so many that the last-level cache
// forgets a round before it comes again. A warm measurement has one round. The memory that a
// RoundBatch points at lies here or in the pools, and nothing is allocated after Make. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/round.h"
#include "tools/bench/rows.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

struct RoundShape {
  int32_t batch = 1;
  int32_t draft = 0;
  int32_t num_rounds = 1;

  int32_t rows_of_sequence() const { return draft + 1; }
  int64_t rows_of_round() const { return int64_t{batch} * rows_of_sequence(); }
};

// The answers of one round. They are apart from the tasks, so that a round can be run again and
// compared.
struct RoundAnswer {
  std::vector<TaskOutcome> outcomes;
  std::vector<TokenId> tokens;     // batch x rows_of_sequence
  std::vector<TokenScore> scores;  // batch x rows_of_sequence x scores_stride
  // Of trees: the accepted nodes, and the places that were looked at; batch x rows_of_sequence.
  std::vector<int32_t> path;
  std::vector<PlaceDecision> decisions;  // empty: not asked for
};

class RoundSet {
 public:
  // Makes the rounds. The backend finds the tokens of DraftPlan::kMatching and kDrawn. The pools
  // must outlive the set and hold num_rounds * rows_of_round rows. `draft_pool` may be null if the
  // case has no draft rows. REQUIRES: the backend is prepared for the shape.
  static absl::StatusOr<std::unique_ptr<RoundSet>> Make(const VerifyCase& verify_case,
                                                        const RoundShape& shape,
                                                        const RowPool& target_pool,
                                                        const RowPool* draft_pool,
                                                        Backend* backend);

  const VerifyCase& verify_case() const { return case_; }
  const RoundShape& shape() const { return shape_; }
  const TensorView& target() const { return target_; }
  const TensorView& draft() const { return draft_; }
  const MaskView& mask() const { return mask_; }
  const Task& task(int32_t round, int32_t sequence) const {
    return tasks_[TaskIndex(round, sequence)];
  }
  int32_t scores_stride() const { return 1 + case_.logprobs; }

  RoundAnswer MakeAnswer() const;
  RoundBatch Batch(int32_t round, RoundAnswer* answer) const;

 private:
  RoundSet(const VerifyCase& verify_case, const RoundShape& shape)
      : case_(verify_case), shape_(shape) {}
  size_t TaskIndex(int32_t round, int32_t sequence) const {
    return static_cast<size_t>(round) * static_cast<size_t>(shape_.batch) +
           static_cast<size_t>(sequence);
  }
  void MakeMask();
  void MakeTasks(const RowPool& target_pool, const RowPool* draft_pool);
  void MakeEdits(const RowPool& target_pool, size_t index);
  void MakeOverrides(int32_t round, int32_t sequence, int32_t place);
  absl::Status FindMatchingTokens(Backend* backend);
  void MakeSideChannel();
  absl::Status DrawTrees(Backend* backend);

  VerifyCase case_;
  RoundShape shape_;
  TensorView target_;
  TensorView draft_;
  MaskView mask_;
  // Indexed by TaskIndex, or by TaskIndex * rows_of_sequence + place.
  std::vector<Task> tasks_;
  std::vector<uint32_t> row_indices_;
  std::vector<uint32_t> draft_row_indices_;  // of a node: the row of its place
  std::vector<int32_t> parents_;             // of every tree; empty: drafts are chains
  std::vector<TokenId> draft_tokens_;
  std::vector<DraftKind> draft_kinds_;
  std::vector<float> draft_weights_;  // in a side channel
  std::vector<double> draft_masses_;  // in a side channel
  std::vector<PlaceEdits> places_;
  std::vector<TokenEdit> overrides_;  // `draft` entries for each place
  std::vector<std::vector<TokenEdit>> edits_;
  std::vector<uint32_t> mask_words_;
};

}  // namespace specd::bench
