// RoundPacker makes a backend's tasks from the inputs of a round.
//
// Each input becomes a task or is answered at once: the sequence is unknown, has finished, or
// cannot be verified with this input. The packer looks a sequence up once; the scratch carries the
// pointer to the commit. After construction it allocates nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/core/counters.h"
#include "kernels/core/sequence_round.h"
#include "speculative/round/round_scratch.h"
#include "speculative/round/row_bindings.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

// How far WarmMasks has come with a round.
struct MaskWarmth {
  // The draft tokens by slot.
  enum class Drafts : uint8_t {
    kUnknown,  // not written yet, as far as the caller knows
    kMarked,   // written; the caller changes kUnknown into it
    kCopied,
    kLost,  // the copy failed
  };
  Drafts drafts = Drafts::kUnknown;
  size_t num_warm = 0;      // constrained sequences that are done, from the first on
  uint64_t num_slices = 0;  // since one was done
};

class RoundPacker {
 public:
  // The pointers must outlive the packer.
  RoundPacker(const BackendLimits& limits, SequenceTable* sequences, const RowBindings* rows,
              LiveCounters* counters, Backend* backend, const grammar::MaskPool::NowNs& now_ns)
      : limits_(limits),
        backend_(*backend),
        sequences_(*sequences),
        rows_(*rows),
        counters_(*counters),
        masks_(limits.threads, now_ns) {}

  // Readies the packer for sequences with a constraint.
  void StartMasks() { masks_.Start(); }

  // Fills scratch->tasks, without the masks of constraints. If an input has no task, results[i] is
  // its answer. An error of the backend leaves no task, and answers kDeviceError. REQUIRES: inputs
  // fit into the scratch, and there are as many results. Numbers of inputs that are not refused are
  // inside the limits and the bound tensors.
  absl::Status Pack(std::span<const SequenceInput> inputs, RoundScratch* scratch,
                    std::span<SequenceResult> results);

  // Fills masks of the packed tasks before end_task for some hundred microseconds. True: they all
  // have theirs, and a backend may run those tasks.
  bool FillMasks(int32_t end_task, RoundScratch* scratch);

  // Builds masks that a Pack of these inputs will ask for, and keeps nothing else. Sequences may
  // change before that Pack, and draft tokens by slot too: Pack reads them again. Works for some
  // hundred microseconds and goes on where *warmth stands. False if nothing is left.
  // Draft tokens by slot that are kMarked are first copied, once; without them a sequence gets the
  // mask of its first place alone. REQUIRES: as Pack, results of this scratch are no longer used,
  // and no round uses it between two calls for one round.
  bool WarmMasks(std::span<const SequenceInput> inputs, RoundScratch* scratch, MaskWarmth* warmth);

  // MaskFiller::TakeSpentNs.
  int64_t TakeMaskNs() { return masks_.TakeSpentNs(); }

  // Returns the packed tasks for a backend, over these target rows.
  RoundBatch BatchOf(const TensorView& target, RoundScratch* scratch) const;

  // Looks up a sequence that has not finished. Otherwise fills the answer and returns null.
  Sequence* FindRunning(SequenceHandle handle, SequenceResult* result) const;

 private:
  // Copies the draft tokens by slot that constraints and processors look at.
  absl::Status ReadDrafts(std::span<const SequenceInput> inputs, RoundScratch* scratch);
  // Copies those of the sequences whose masks can be warm. True if they are copied.
  bool ReadDraftsEarly(std::span<const SequenceInput> inputs, RoundScratch* scratch);
  // The sequence of the input if Pack will ask for masks that can be built before; else null.
  Sequence* FindWarmable(const SequenceInput& input, uint64_t stamp) const;
  bool NeedsHostDraft(const SequenceInput& input, const RoundScratch& scratch) const;
  // Fills the next task, or answers the input. True if there is a task to run.
  bool PackOne(const SequenceInput& input, uint64_t stamp, RoundScratch* scratch,
               SequenceResult* result);
  // Returns why this sequence cannot be verified with this input.
  Refusal FindRefusal(const SequenceInput& input, const Sequence& sequence, uint64_t stamp,
                      bool is_staged) const;
  Refusal FindArgmaxRefusal(const SequenceInput& input, const Sequence& sequence) const;
  void CheckNumbers(const SequenceInput& input) const;
  void PackPlaces(const SequenceInput& input, Sequence* sequence, Task* task, PlaceEdits* places,
                  std::vector<MaskFiller::Job>* mask_jobs);

  const BackendLimits limits_;
  Backend& backend_;
  SequenceTable& sequences_;
  const RowBindings& rows_;
  LiveCounters& counters_;
  MaskFiller masks_;
};

}  // namespace specd
