// A task as a device reads it: its arrays are in an arena, its rows lie on the device or have been
// copied there.
//
// A new array in Task is one line of StageTask(). Not for several threads at once.
#pragma once

#include <cstdint>

#include "kernels/core/round.h"
#include "kernels/cuda/staging.h"

namespace specd {

constexpr int64_t MaskWords(int32_t vocab_size) { return (vocab_size + 31) / 32; }

// Where the rows of a batch that lie in host memory are copied to. Of a tensor that lies on the
// device nothing is ever appended.
struct BatchRows {
  RowStage target;
  RowStage draft;
  RowStage masks;

  // Of the first copy that failed.
  GpuResult result() const;
};

// The row of a tensor as a kernel knows it: its own number where the tensor lies on the device,
// else that of its copy.
uint32_t StageRow(const TensorView& tensor, uint32_t row, RowStage* stage);

// What a kernel is given: the tensor itself where it lies on the device, else the copied rows.
TensorView OnDevice(const TensorView& tensor, const RowStage& stage);
MaskView OnDevice(const MaskView& mask, const RowStage& stage, int32_t vocab_size);

// Places, and so target rows, of a task. Every draft token that is scored has a row; those that are
// verified have one more.
inline int32_t NumPlaces(const Task& task) {
  return task.draft.num_nodes + (task.kind == TaskKind::kScore ? 0 : 1);
}

// The bytes that a task's edits and the overrides of its places take in an arena: as many as its
// parameters make, up to the vocabulary for each list.
size_t ListBytes(const Task& task);

// Copies a task of `batch` into its place, with pointers and row numbers that mean something on the
// device. False, and no row is copied, if the arena is full.
bool StageTask(const Task& task, const RoundBatch& batch, BatchRows* rows, Arena* arena,
               Task* staged);

}  // namespace specd
