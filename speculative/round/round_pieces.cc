#include "speculative/round/round_pieces.h"

#include <algorithm>
#include <limits>

namespace specd {

namespace {

// The passes over a row that a task may make. A place has one; its draft row and its filters are in
// proportion to it. Scores read the row again: once for its mass, once for the best ids, and once
// for the score rank of each given id. Draft tokens without replacement take a pass each.
int64_t PassesOf(const Task& task) {
  const ScoreRequest& scores = task.scores;
  const int64_t of_scores =
      scores.enabled ? 2 + (scores.num_top > 0 ? 1 : 0) + int64_t{scores.num_chosen} : 0;
  switch (task.kind) {
    case TaskKind::kVerify:
      return 1 + of_scores;
    case TaskKind::kScore:
      return of_scores;
    case TaskKind::kSampleDraft:
      break;
  }
  if (task.sampling == DraftSampling::kMixed) return 3;  // the row, its best ids, and the rest
  return task.sampling == DraftSampling::kWithoutReplacement ? task.num_children : 1;
}

}  // namespace

int64_t RoundPieces::RowWorkOf(const Task& task) const {
  const int64_t copied = bound_.host_row_factor - 1;
  int64_t passes = PassesOf(task);
  if (batch_.target.space == MemorySpace::kHost) passes += copied;
  if (batch_.draft.space == MemorySpace::kHost && task.draft.draft_rows != nullptr) {
    passes += copied;
  }
  return passes * batch_.target.vocab_size;
}

// The elements that a task may read.
int64_t RoundPieces::WorkOf(int32_t index) const {
  const Task& task = batch_.tasks[index];
  if (task.draft.target_argmax != nullptr) return 0;  // it reads no row
  int64_t num_rows = int64_t{task.draft.num_nodes} + (task.kind == TaskKind::kScore ? 0 : 1);
  // Each drawn child of a place that falls takes its own pass over q, and one over both rows.
  if (IsTree(task) && ReadsDraftRows(task.method)) num_rows += 3 * int64_t{task.draft.num_nodes};
  return num_rows * RowWorkOf(task);
}

void RoundPieces::Begin(const RoundBatch& batch, int64_t factor) {
  work_max_ = bound_.work_max > std::numeric_limits<int64_t>::max() / factor
                  ? bound_.work_max
                  : bound_.work_max * factor;
  batch_ = batch;
  next_ = 0;
  progress_ = {};
  int64_t work = 0;
  for (int32_t i = 0; i < batch.num_tasks; ++i) work += WorkOf(i);
  const bool has_more = bound_.tasks_min == 1 || batch.num_tasks > bound_.tasks_min;
  is_cut_ = work > work_max_ && has_more;
}

RoundBatch RoundPieces::Next() {
  int64_t work = WorkOf(next_);
  end_ = next_ + 1;
  while (end_ < batch_.num_tasks &&
         (end_ - next_ < bound_.tasks_min || work + WorkOf(end_) <= work_max_)) {
    work += WorkOf(end_++);
  }
  RoundBatch piece = TasksOf(batch_, next_, end_ - next_);
  if (work > work_max_ && end_ - next_ == 1) {
    progress_.is_paused = false;
    piece.progress = &progress_;
    const int64_t row_work = RowWorkOf(batch_.tasks[next_]);
    piece.rows_max = static_cast<int32_t>(std::max<int64_t>(work_max_ / row_work, 1));
  }
  return piece;
}

void RoundPieces::Advance() {
  if (progress_.is_paused) return;
  next_ = end_;
  progress_ = {};
}

}  // namespace specd
