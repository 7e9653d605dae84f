// BatchUpload carries the tasks of a round to a device and their answers back, for CudaBackend and
// RoundQueue.
//
// The owner makes one over two empty arenas, packs as many tasks as fit, fills the round and copies
// the first arena to the device. When the round has run, the answers are in the second arena. A
// view of the arenas' memory; not for several threads at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/round_upload.h"
#include "kernels/cuda/task_upload.h"

namespace specd {

// The longest lists of edits that a task may have. 8 MiB are always allowed. So are the lists of
// the whole vocabulary for a sequence and one place.
size_t ListBytesMax(int32_t vocab_size, int32_t max_draft);

// The sizes of the arenas for max_tasks with usual lists; one task may have the longest lists.
size_t TaskArenaBytes(int32_t vocab_size, int32_t max_draft, int32_t max_tasks);
size_t AnswerArenaBytes(int32_t max_tasks);

// The bytes that a launch for num_tasks is wide enough to fetch at once.
size_t UsualFetchBytes(int32_t num_tasks);

// An array of answers, `width` elements for each task; the caller's array has one task every
// `stride` elements. It begins as a copy of the caller's, so an element that no task writes keeps
// its value.
template <typename T>
class Answers {
 public:
  Answers(T* all, int32_t first, int64_t stride, int64_t width, int32_t num_tasks, Arena* arena)
      : caller_(all + first * stride),
        stride_(stride),
        width_(width),
        array_(arena->Take<T>(width * num_tasks)) {
    if (array_.host == nullptr) return;
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(caller_ + i * stride_, width_, array_.host + i * width_);
    }
  }

  T* device() const { return array_.device; }

  void CopyBack(int32_t num_tasks) const {
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(array_.host + i * width_, width_, caller_ + i * stride_);
    }
  }

 private:
  T* caller_;
  int64_t stride_;
  int64_t width_;
  ArenaArray<T> array_;
};

class BatchUpload {
 public:
  // Takes at most max_tasks tasks from `first` on, and fewer if answers are large. The round is the
  // first object in `arena`.
  BatchUpload(const RoundBatch& batch, int32_t first, int32_t max_tasks,
              const BackendLimits& limits, const BatchRows& rows, Arena* arena, Arena* answers);

  // Packs tasks until one does not fit, and returns the number of packed tasks. 0: the first task
  // has longer lists than ListBytesMax.
  int32_t PackTasks();
  // The bytes after the last packed task.
  size_t bytes_left() const { return bytes_left_; }
  // The result of the copies of rows.
  GpuResult result() const { return rows_.result(); }

  // Completes the round. `memory` is RoundMemoryBytes of device memory for the parts that are not
  // packed. Returns FusedRound::num_launches. REQUIRES: tasks were packed.
  int32_t Fill(char* memory) const;
  // The device address of the round.
  const FusedRound* round() const { return round_.device(); }
  // After Fill: whether LaunchResolve is needed.
  bool resolves() const { return round_.resolves(); }

  // Copies the answers to the caller's arrays. REQUIRES: the round has run.
  void CopyBack() const;

  const RoundBatch& batch() const { return batch_; }
  int32_t first() const { return first_; }
  int32_t room() const { return room_; }
  int32_t count() const { return count_; }

 private:
  // The slot outputs that the device writes: the device address and the length
  // of their list.
  struct SlotOutputs {
    const SlotOutput* arrays = nullptr;
    int32_t count = 0;
  };
  static SlotOutputs PutSlotOutputs(const RoundBatch& batch, Arena* arena);

  RoundBatch batch_;  // the caller's
  int32_t first_;
  int32_t room_;
  BackendLimits limits_;
  Arena* arena_;
  Arena* answers_;
  int32_t count_ = 0;
  size_t bytes_left_ = 0;
  Answers<TaskOutcome> outcomes_;
  Answers<TokenId> tokens_;
  Answers<int32_t> path_;
  Answers<TokenScore> scores_;
  Answers<DraftSample> samples_;
  Answers<PlaceDecision> decisions_;
  RoundUpload round_;
  ArenaArray<Task> tasks_;
  SlotOutputs slot_outputs_;
  BatchRows rows_;
};

}  // namespace specd
