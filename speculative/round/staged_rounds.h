// StagedRounds keeps the rounds that run inside the engine's CUDA graph, one round or more before
// the host knows their results.
//
// Packing and commit happen at different times. A round is packed and staged, the graph runs it,
// and a later call collects and commits it. The rounds lie in a ring of kStagedRoundsMax rounds,
// which the first Enqueue takes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "speculative/round/round_commit.h"
#include "speculative/round/round_observer.h"
#include "speculative/round/round_packer.h"
#include "speculative/round/round_scratch.h"

namespace specd {

class StagedRounds {
 public:
  // The parts that a staged round uses. They must outlive this object.
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

  // Packs a round and stages it, even if it has no task, so that each run of the launches has a
  // round of its own. A sequence with staged rounds continues from the end of those rounds. Its
  // slot is not given out before they are collected. REQUIRES: Enqueue has succeeded once; count()
  // < kStagedRoundsMax.
  void Stage(std::span<const SequenceInput> inputs);

  // Commits the oldest staged round if the device has run it, and fills a result for each of its
  // inputs. A sequence that has finished meanwhile is answered kFinished, and one that was closed
  // kUnknownSequence. Once the backend has failed, all staged rounds are answered kDeviceError.
  // REQUIRES: results.size() is num_inputs().
  bool Collect(std::span<SequenceResult> results);

  // Shows every round to the observer when it is collected; null: to none. Its decisions are
  // recorded if the limits have records_staged.
  void Observe(RoundObserver* observer) { observer_ = observer; }

  int32_t count() const { return count_; }
  size_t num_inputs() const;  // of the oldest staged round; 0 if there is none

  // The reason why staged rounds are answered kDeviceError; OK if they are not.
  const absl::Status& failure() const { return failure_; }

 private:
  // A round between Stage and Collect. Answers that are known at once are in results; the backend
  // fills the scratch.
  struct Staged {
    RoundScratch scratch;
    std::vector<SequenceResult> results;
    std::vector<PlaceDecision> decisions;  // empty without records_staged
    size_t num_inputs = 0;
  };
  // Removes the tasks for which the backend has no memory. False if there are none.
  bool RefuseWithoutRoom(Staged* staged);
  int32_t DecisionsStride() const { return limits_.max_draft + 1; }
  void AddDecisions(Staged* staged, RoundBatch* batch) const;
  void ShowRan(Staged* staged) const;
  void RecallResult(const SequenceResult& staged, SequenceResult* result);

  const BackendLimits limits_;
  const Parts parts_;
  std::vector<Staged> ring_;  // empty before Enqueue
  size_t first_ = 0;
  int32_t count_ = 0;
  RoundObserver* observer_ = nullptr;
  absl::Status failure_;  // permanent: a backend that has failed has lost the order of rounds
};

}  // namespace specd
