// MaskFiller fills the masks of a round's constrained sequences, with several threads where that
// pays.
//
// A mask that was built before is found in a tenth of a microsecond; a new one may take a
// millisecond. The sequences of a round do not depend on each other, so threads share them. While
// an engine's CUDA stream still runs the target model, a round is packed already: its masks are
// then ready when the rows are. One caller at a time; after Start, Fill starts no thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/core/round.h"
#include "kernels/cpu/worker_pool.h"
#include "speculative/sequence_table.h"

namespace specd {

class MaskFiller {
 public:
  explicit MaskFiller(int32_t threads) : threads_(threads) {}

  // Starts the threads, once. A session without constraints never calls it.
  void Start();

  struct Job {
    SequenceGrammar* grammar = nullptr;
    const Draft* draft = nullptr;
    PlaceEdits* places = nullptr;
  };
  void Fill(std::span<const Job> jobs);

 private:
  const int32_t threads_;
  std::unique_ptr<WorkerPool> pool_;  // null: the caller fills alone
};

}  // namespace specd
