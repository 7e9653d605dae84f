// PackTask packs a task for a device: the task's arrays into an arena, and its rows as copies
// unless they lie on the device.
//
// A new array in Task is one line of PackTask(). Not for several threads at once.
#pragma once

#include <cstdint>

#include "kernels/core/round.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

constexpr int64_t MaskWords(int32_t vocab_size) { return (vocab_size + 31) / 32; }

// The destinations of a batch's rows from host memory. Rows of a tensor on the device are never
// appended.
struct BatchRows {
  RowUpload target;
  RowUpload draft;
  RowUpload masks;

  // The result of the first copy that failed.
  GpuResult result() const;
};

// The row number for a kernel: the row's own number if the tensor lies on the device, otherwise
// that of its copy.
uint32_t UploadRow(const TensorView& tensor, uint32_t row, RowUpload* rows);

// The tensor for a kernel: the tensor itself if it lies on the device, otherwise the copied rows.
TensorView OnDevice(const TensorView& tensor, const RowUpload& rows);
MaskView OnDevice(const MaskView& mask, const RowUpload& rows, int32_t vocab_size);

// The places of a task, and so its target rows. If draft tokens are scored, each has a row; if they
// are verified, there is one more.
inline int32_t NumPlaces(const Task& task) {
  return task.draft.num_nodes + (task.kind == TaskKind::kScore ? 0 : 1);
}

// The bytes of a task's edits and of the overrides of its places in an arena. The task's parameters
// set their number, up to the vocabulary for each list.
size_t ListBytes(const Task& task);

// Copies a task of `batch` to `packed`, with pointers and row numbers of the device. If the arena
// is full, returns false and copies no row.
bool PackTask(const Task& task, const RoundBatch& batch, BatchRows* rows, Arena* arena,
              Task* packed);

}  // namespace specd
