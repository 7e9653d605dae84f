// A task as a device reads it: its arrays are in an arena, its rows lie on the device or have been
// copied there.
//
// A new array in ChainTask is one line of StageTask(). Not for several threads at once.
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

// Copies a task of `batch` into its place, with pointers and row numbers that mean something on the
// device. False, and no row is copied, if the arena is full.
bool StageTask(const ChainTask& task, const RoundBatch& batch, BatchRows* rows, Arena* arena,
               ChainTask* staged);

}  // namespace specd
