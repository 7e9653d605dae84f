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
#include <memory>
#include <span>
#include <vector>

#include "daemon/trace/trace_record.h"
#include "kernels/backend.h"
#include "speculative/round/round_observer.h"

namespace specd {

// A row or mask that places of the round name; each is there once.
struct RowCopy {
  TraceTensor tensor = TraceTensor::kTarget;
  uint32_t index = 0;  // as TraceRow::index
  uint64_t hash = 0;   // 0: not computed yet
  const std::byte* bytes = nullptr;
};

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

// The places whose rows the task's method reads. Rows behind the place where the draft ended were
// not read, except by `block`, which looks at the whole draft before it decides. Places of a tree
// are in no such order, so all of them count.
int32_t NumReadPlaces(const Task& task, const TaskOutcome& outcome);

// The bytes of one row of a tensor, or of a mask.
uint64_t RowBytes(const TensorView& tensor);
uint64_t MaskRowBytes(int32_t vocab_size);

class RoundCopier {
 public:
  explicit RoundCopier(const BackendLimits& limits);
  // The memory that it takes.
  static uint64_t SizeBytes(const BackendLimits& limits);

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
  struct RowKey {
    TraceTensor tensor;
    uint32_t index;
    const std::byte* bytes;
    friend bool operator==(const RowKey&, const RowKey&) = default;
  };
  class Arena;

  void ListRows(const RanRound& round, const Selection& selection);
  void ListPlaces(const RanRound& round, int32_t task_index, bool all_places);
  // Writes a narrow draft row as a row of all ids. False: the backend did not give it.
  bool CopyNarrow(const RanRound& round, const RowKey& row, std::byte* to) const;
  // Fills the rows of the copy. False: the backend did not give them.
  bool CopyRows(const RanRound& round, TraceLevel level, Arena* arena, RowCopy* rows);
  int32_t FindGrammarMask(const uint32_t* words) const;
  RoundCopy* Walk(const RanRound& round, const Selection& selection, Arena* arena);
  void CopyTask(const RanRound& round, const Selection& selection, uint32_t index, Arena* arena,
                TaskCopy* out) const;
  // The parents of a tree by slot, as the processor knew them, and its draft rows by node.
  static void CopyTree(const PlaceDecision* record, bool has_draft_rows, Arena* arena, Task* task);
  void CopyAnswer(const RanRound& round, uint32_t index, Arena* arena, TaskCopy* out) const;
  void CopyPlaces(const RanRound& round, TraceLevel level, uint32_t index, Arena* arena,
                  TaskCopy* out) const;
  uint64_t BytesOf(const RanRound& round, TraceTensor tensor) const;

  std::vector<RowKey> rows_;       // of the measured round
  std::vector<MemoryRead> reads_;  // those of its rows that lie on the device
  // Room for one row, to compute a hash without keeping the row, and for a narrow row before it is
  // widened. Untouched unless they are used.
  std::unique_ptr<std::byte[]> hashed_row_;
  uint64_t measured_ = 0;  // by the last Measure
  std::unique_ptr<std::byte[]> narrow_row_;
};

}  // namespace specd
