#include "speculative/round_pieces.h"

#include <algorithm>
#include <limits>

namespace specd {

// The elements of the target rows that a task may read. The draft rows and further passes over a
// row are in proportion to them.
int64_t RoundPieces::WorkOf(int32_t task) const {
  const Draft& draft = batch_.tasks[task].draft;
  if (draft.target_argmax != nullptr) return 0;  // it reads no row
  return (int64_t{draft.num_nodes} + 1) * batch_.target.vocab_size;
}

void RoundPieces::Begin(const RoundBatch& batch, int64_t factor) {
  work_max_ = usual_work_max_ > std::numeric_limits<int64_t>::max() / factor
                  ? usual_work_max_
                  : usual_work_max_ * factor;
  batch_ = batch;
  next_ = 0;
  progress_ = {};
  int64_t work = 0;
  for (int32_t i = 0; i < batch.num_tasks; ++i) work += WorkOf(i);
  is_cut_ = work > work_max_;
}

RoundBatch RoundPieces::Next() {
  int64_t work = WorkOf(next_);
  end_ = next_ + 1;
  while (end_ < batch_.num_tasks && work + WorkOf(end_) <= work_max_) work += WorkOf(end_++);
  RoundBatch piece = TasksOf(batch_, next_, end_ - next_);
  if (work > work_max_) {
    progress_.is_paused = false;
    piece.progress = &progress_;
    piece.rows_max =
        static_cast<int32_t>(std::max<int64_t>(work_max_ / batch_.target.vocab_size, 1));
  }
  return piece;
}

void RoundPieces::Advance() {
  if (progress_.is_paused) return;
  next_ = end_;
  progress_ = {};
}

}  // namespace specd
