// RoundPieces cuts a packed round into pieces of bounded work for Verifier and CallRunner.
//
// A piece has as many whole tasks as the bound allows. A task beyond the bound runs alone, in
// pieces of several rows (PausedTask), where the backend can pause it: between places, and between
// the children of a place of a tree. The tasks of a round do not depend on each other, so a cut
// changes no answer. A round within the bound has
// one piece. Calls that read rows are cut likewise. Allocates nothing. One thread at a time.
//
//   pieces.Begin(batch);
//   while (!pieces.done()) {
//     backend->Run(pieces.Next());
//     pieces.Advance();
//   }
#pragma once

#include <cstdint>

#include "kernels/core/round.h"

namespace specd {

// The work of a piece for each thread of a backend, in elements of rows: some hundred microseconds,
// and one of the longest rows. The round of an ordinary engine is below it: 32 sequences with 2
// drafts over 128,256 tokens have three quarters of the bound of 16 threads.
inline constexpr int64_t kPieceWork = int64_t{1} << 20;
// The same for a device: a millisecond or two of reads at 3 TB/s. Estimate: it was not measured on
// one. A round of 1024 sequences with 5 drafts over 152,064 tokens is below it.
inline constexpr int64_t kDevicePieceWork = int64_t{1} << 30;
// A device copies a row of the host before it reads the row, over a bus that is this many times
// slower than its memory. Estimate.
inline constexpr int64_t kCopiedRowFactor = 64;
// If no other session waits, a cut only gives way to control messages and to the end of the daemon.
// Pieces are then this many times as large.
inline constexpr int64_t kAloneFactor = 32;

// A device runs a task with scores in one block, and such tasks beside each other. A piece with
// fewer tasks would leave most of a device idle. Estimate: an H200 has 132 processors.
inline constexpr int32_t kDeviceTasksMin = 128;

struct PieceBound {
  int64_t work_max = 0;         // elements that the rows of one piece may have together
  int64_t host_row_factor = 1;  // a row in host memory counts as so many
  int32_t tasks_min = 1;        // a piece has so many tasks, whatever their work
};

class RoundPieces {
 public:
  explicit RoundPieces(const PieceBound& bound) : bound_(bound), work_max_(bound.work_max) {}

  // `factor` multiplies the usual bound for this round.
  void Begin(const RoundBatch& batch, int64_t factor = 1);

  // The whole round.
  RoundBatch& batch() { return batch_; }
  // True if the round has more than one piece.
  bool is_cut() const { return is_cut_; }

  bool done() const { return next_ == batch_.num_tasks; }
  // The next piece. REQUIRES: !done(); RoundPieces stays where it is until Advance.
  RoundBatch Next();
  // The end of that piece, in tasks of the round.
  int32_t end() const { return end_; }
  // The piece has run.
  void Advance();

 private:
  // The work of one row of a task, and of all its rows.
  int64_t RowWorkOf(const Task& task) const;
  int64_t WorkOf(int32_t index) const;

  const PieceBound bound_;
  int64_t work_max_;  // of this round
  RoundBatch batch_;
  bool is_cut_ = false;
  int32_t next_ = 0;     // the first task that has not ended
  int32_t end_ = 0;      // of the piece
  PausedTask progress_;  // of task next_
};

}  // namespace specd
