// A whole round with owned memory, for tests of backends: tensors, tasks and room for answers. The
// RoundBatch it gives points into it and is valid while it lives.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/round.h"
#include "tests/support/rows.h"

namespace specd {

// Random sequences of mixed methods, draft kinds, lengths 0..max_draft and degenerate rows.
class RoundCase {
 public:
  struct Options {
    int32_t vocab_size = 0;
    int32_t batch = 0;
    int32_t max_draft = 0;
    DType dtype = DType::kFloat32;
    uint64_t seed = 0;
  };

  explicit RoundCase(const Options& options);
  RoundCase(const RoundCase&) = delete;
  RoundCase& operator=(const RoundCase&) = delete;

  // The round, or the part of it whose tasks stand at `places`, in that order.
  RoundBatch All();
  RoundBatch Some(const std::vector<int32_t>& places);

  const ChainOutcome& outcome(int32_t i) const { return outcomes_[i]; }
  // The tokens of answer i, and nothing behind them.
  std::vector<TokenId> tokens(int32_t i) const;

 private:
  struct Sequence {
    std::vector<TokenId> draft;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    ChainTask task;
  };

  Options options_;
  RowMatrix target_;
  RowMatrix draft_;
  std::vector<Sequence> sequences_;
  std::vector<ChainTask> tasks_;
  std::vector<ChainOutcome> outcomes_;
  std::vector<TokenId> tokens_;
};

}  // namespace specd
