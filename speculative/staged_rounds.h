// StagedRounds: rounds that run inside a graph of the engine's, one round or more ahead of what is
// known here.
//
// Packing and commit happen at different times: a round is packed and staged, the graph runs it,
// and a later call collects and commits it. A ring of kStagedRoundsMax rounds, taken at the first
// Enqueue. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "speculative/round_commit.h"
#include "speculative/round_packer.h"
#include "speculative/round_scratch.h"

namespace specd {

class StagedRounds {
 public:
  // The parts that a staged round is made with. They must outlive this object.
  struct Parts {
    Backend* backend = nullptr;
    SequenceTable* sequences = nullptr;
    const RowBindings* rows = nullptr;
    RoundPacker* packer = nullptr;
    RoundCommitter* committer = nullptr;
  };
  StagedRounds(const BackendLimits& limits, const Parts& parts) : limits_(limits), parts_(parts) {}

  // Enqueues the launches that run staged rounds: Backend::EnqueueStaged. The first call takes the
  // memory that staged rounds need.
  absl::Status Enqueue(void* stream, int32_t num_sequences);

  // Packs a round and stages it whatever its inputs are, so that each run of the launches has a
  // round of its own. A sequence with staged rounds goes on from where those will have left it, and
  // its slot is not given out before they are collected. REQUIRES: Enqueue has succeeded once;
  // count() < kStagedRoundsMax.
  void Stage(std::span<const SequenceInput> inputs);

  // Commits the oldest staged round if it has been done, and fills a result for each of its inputs.
  // A sequence that has finished meanwhile is answered kFinished, one that was closed
  // kUnknownSequence. Once the backend has failed, all staged rounds are answered kDeviceError.
  // REQUIRES: results.size() is num_inputs().
  bool Collect(std::span<SequenceResult> results);

  int32_t count() const { return count_; }
  size_t num_inputs() const;  // of the oldest; 0 where none is staged

  // Why staged rounds are answered kDeviceError; OK where they are not.
  const absl::Status& failure() const { return failure_; }

 private:
  // A round between Stage and Collect. The answers that are known at once are in results; the
  // backend fills the scratch.
  struct Staged {
    RoundScratch scratch;
    std::vector<SequenceResult> results;
    size_t num_inputs = 0;
  };
  // Leaves out the tasks that the backend has said it has no room for; false where there are none.
  bool RefuseWithoutRoom(Staged* staged);
  void RecallResult(const SequenceResult& staged, SequenceResult* result);

  const BackendLimits limits_;
  const Parts parts_;
  std::vector<Staged> ring_;  // empty before Enqueue
  size_t first_ = 0;
  int32_t count_ = 0;
  absl::Status failure_;  // for good: a backend that has failed has lost the order of rounds
};

}  // namespace specd
