// RoundObserver sees each round of a verifier: before it runs, before its commit, and after it.
//
// A recorder implements it (daemon/trace). Without an observer a round costs one branch more. The
// calls come in this order, from the thread that runs the round and under its lock. They must
// allocate nothing, and wait for nothing but RanRound::backend.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

// A round that the backend has answered and that is not committed yet.
struct RanRound {
  // The tasks and their outcomes. If status is not kOk, no task has an outcome.
  const RoundBatch& batch;
  RoundStatus status = RoundStatus::kOk;
  // The sequence of each task, in the state before the round. Empty for rounds inside the engine's
  // CUDA graph.
  std::span<Sequence* const> sequences;
  // True if rows, masks, edits and places are as the round read them. For rounds inside the
  // engine's CUDA graph, and for rounds that were called off, this is false: only the drafts, the
  // numbers of the tasks and the decisions are valid.
  bool is_intact = false;
  // The backend that ran the round, for ReadMemory of rows in device memory.
  Backend* backend = nullptr;
  // If draft rows are narrow: the column of each id, in memory of the host.
  const int32_t* draft_columns = nullptr;
};

class RoundObserver {
 public:
  virtual ~RoundObserver() = default;

  // A round with these tasks is about to run. The observer may set batch->decisions. Rounds inside
  // the engine's CUDA graph have run, and keep their own decisions.
  virtual void Begin(RoundBatch* batch) = 0;
  virtual void Ran(const RanRound& round) = 0;
  // The round's answers, one for each of its inputs. task_results[i] is the answer of task i.
  virtual void Committed(std::span<const SequenceResult> results,
                         std::span<const uint32_t> task_results) = 0;
};

}  // namespace specd
