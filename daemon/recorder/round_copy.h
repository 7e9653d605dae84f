// RoundCopy is a deep copy of one round in one piece of memory, from the thread that ran it to the
// writer of its trace.
//
// RoundCopier makes it between the run and the commit of the round, when everything that the
// backend read is still there: tasks, edits, masks and rows. Rows in device memory come through the
// backend. The copy holds pointers into its own memory only. It is plain data, so no destructor
// runs. The copier allocates nothing after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/recorder/copy_arena.h"
#include "daemon/recorder/row_copier.h"
#include "daemon/trace/trace_record.h"
#include "kernels/backend.h"
#include "speculative/round/round_observer.h"

namespace specd {

// One task with the backend's answer.
struct TaskCopy {
  Task task;                // places are null if nothing is edited or masked
  uint32_t result = 0;      // the input of the round that it answers
  uint32_t answer = 0;      // index into RoundCopy::answers
  uint64_t edits_hash = 0;  // as in TraceTask; 0: the writer computes it from the lists
  uint64_t overrides_hash = 0;
  TaskOutcome outcome;
  const TokenId* tokens = nullptr;  // outcome.num_tokens
  const int32_t* path = nullptr;    // outcome.num_accepted; null: there is none
  const TokenScore* scores = nullptr;
  const PlaceDecision* decisions = nullptr;  // one for each place; null: there are none
  const uint64_t* grammar_states = nullptr;  // one for each place; null: no constraint
  // One for each place: the index of its kGrammarMask row; null: none or not recorded.
  const int32_t* grammar_masks = nullptr;
};

struct RoundCopy : TraceRoundFacts {
  bool has_run = false;  // else the round was called off before it ran, and only answers are here
  // Without memory: dtype, rules, space, width. Narrow draft rows are copied as rows of all ids;
  // num_columns says that they were narrow.
  TensorView target;
  TensorView draft;
  std::span<TaskCopy> tasks;
  std::span<RowCopy> rows;  // sorted by tensor and index
  std::span<TraceAnswer> answers;
};

class RoundCopier {
 public:
  explicit RoundCopier(const BackendLimits& limits) : rows_(limits) {}

  struct Selection {
    TraceLevel level = TraceLevel::kRounds;
    // The tasks to copy, in ascending order.
    std::span<const uint32_t> tasks;
    // Rows of all places, also of those that the method did not read.
    bool all_places = false;
    // Bounds of the answers, which are added later.
    size_t max_answers = 0;
  };

  // Looks at the round, and returns the size of its copy.
  uint64_t Measure(const RanRound& round, const Selection& selection);
  // Copies the round that was measured last. `memory` has the measured size and is aligned to 64.
  // The answers have the size 0 and room for max_answers; they lie at the end. Null: the backend
  // did not give the rows.
  RoundCopy* Copy(const RanRound& round, const Selection& selection, std::byte* memory);

 private:
  RoundCopy* Walk(const RanRound& round, const Selection& selection, CopyArena* arena);
  void CopyTask(const RanRound& round, const Selection& selection, uint32_t index, CopyArena* arena,
                TaskCopy* out) const;
  // The parents of a tree by slot, as the processor knew them, and its draft rows by node.
  static void CopyTree(const PlaceDecision* record, bool has_draft_rows, CopyArena* arena,
                       Task* task);
  void CopyAnswer(const RanRound& round, uint32_t index, CopyArena* arena, TaskCopy* out) const;
  void CopyPlaces(const RanRound& round, TraceLevel level, uint32_t index, CopyArena* arena,
                  TaskCopy* out) const;
  RowCopier rows_;
  uint64_t measured_ = 0;  // by the last Measure
};

}  // namespace specd
