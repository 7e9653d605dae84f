// StagedBatch: tasks of a round on their way to a device, and their answers on the way back.
//
// Whoever runs rounds on a device makes one over two arenas that are empty, stages as many tasks as
// there is room for, fills the round and brings the first arena over; when the round has run the
// answers are in the second one. A view of the arenas' memory; not for several threads at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/staged_round.h"
#include "kernels/cuda/staged_task.h"

namespace specd {

// The longest lists that a task may have: those of any sequence where they take 8 MiB or less, and
// always those of the whole vocabulary, for a sequence and one place.
size_t ListBytesMax(int32_t vocab_size, int32_t max_draft);

// How large the arenas have to be for max_tasks with usual lists, one of which has the longest.
size_t TaskArenaBytes(int32_t vocab_size, int32_t max_draft, int32_t max_tasks);
size_t AnswerArenaBytes(int32_t max_tasks);

// What a launch for rounds of so many tasks is wide enough to fetch at once.
size_t UsualFetchBytes(int32_t num_tasks);

// An array of answers, `width` elements for each task, which the caller has `stride` apart. It
// begins as the caller has it, so that what no task writes keeps its value.
template <typename T>
class Answers {
 public:
  Answers(T* all, int32_t first, int64_t stride, int64_t width, int32_t num_tasks, Arena* arena)
      : caller_(all + first * stride),
        stride_(stride),
        width_(width),
        staged_(arena->Take<T>(width * num_tasks)) {
    if (staged_.host == nullptr) return;
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(caller_ + i * stride_, width_, staged_.host + i * width_);
    }
  }

  T* device() const { return staged_.device; }

  void CopyBack(int32_t num_tasks) const {
    for (int32_t i = 0; i < num_tasks; ++i) {
      std::copy_n(staged_.host + i * width_, width_, caller_ + i * stride_);
    }
  }

 private:
  T* caller_;
  int64_t stride_;
  int64_t width_;
  StagedArray<T> staged_;
};

class StagedBatch {
 public:
  // Of the tasks from `first` on: max_tasks of them at most, and fewer where answers are large.
  // The round is the first thing in `arena`.
  StagedBatch(const RoundBatch& batch, int32_t first, int32_t max_tasks,
              const BackendLimits& limits, const BatchRows& rows, Arena* arena, Arena* answers);

  // Stages tasks until one does not fit, and returns how many were staged. None: the first has
  // longer lists than ListBytesMax.
  int32_t StageTasks();
  // Behind the last task that was staged.
  size_t bytes_left() const { return bytes_left_; }
  // Of the copies of rows.
  GpuResult result() const { return rows_.result(); }

  // Completes the round: its memory, besides what was staged, is `memory` of the device,
  // RoundMemoryBytes. Returns FusedRound::num_launches. REQUIRES: tasks were staged.
  int32_t Fill(char* memory) const;
  // After Fill: is LaunchResolve needed?
  bool resolves() const { return round_.resolves(); }

  // Puts the answers where the caller wants them. REQUIRES: the round has run.
  void CopyBack() const;

  const RoundBatch& batch() const { return batch_; }
  int32_t first() const { return first_; }
  int32_t room() const { return room_; }
  int32_t count() const { return count_; }

 private:
  // Those arrays of next tokens that the device writes: where kernels find the list, and its
  // length.
  struct TokenArrays {
    const TokenArray* arrays = nullptr;
    int32_t count = 0;
  };
  static TokenArrays StageNextTokens(const RoundBatch& batch, Arena* arena);

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
  StagedRound round_;
  StagedArray<Task> tasks_;
  TokenArrays next_tokens_;
  BatchRows rows_;
};

}  // namespace specd
