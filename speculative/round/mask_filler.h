// MaskFiller fills the masks of a round's constrained sequences, with several threads where that
// pays.
//
// A mask that was built before is found in a tenth of a microsecond; a new one may take a
// millisecond. The sequences of a round do not depend on each other, so threads share them; a
// MaskPool decides by the time that has passed. Fill works for some hundred microseconds, so a
// caller that serves others can let them go first. A sequence for whose masks no memory is left is
// marked and ends in its round; the others are filled. One caller at a time; after Start, no call
// starts a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/core/round.h"
#include "speculative/grammar/masks/mask_pool.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

class MaskFiller {
 public:
  // How long Fill begins new sequences, and what a sequence may then take: as long again, at some
  // 8 ns for a unit. With four times as much, ten small engines beside new masks had a p99 of 5.4
  // times their own (`specd-bench stall --case=masks --threads=1`).
  static constexpr int64_t kSliceNs = 130'000;
  static constexpr grammar::WorkSlice kSlice = {.units = 1 << 14};

  // `now_ns` tells the time in nanoseconds, to any thread. If it is null, the caller fills alone
  // and Fill fills all.
  MaskFiller(int32_t threads, const grammar::MaskPool::NowNs& now_ns);

  // Starts the threads, once. A session without constraints never calls it.
  void Start();

  struct Job {
    Sequence* sequence = nullptr;
    const Draft* draft = nullptr;
    PlaceEdits* places = nullptr;
    int32_t next_place = 0;  // those before it are filled
  };
  // Works on the first job and on others until kSliceNs have passed, or all are filled. Returns how
  // many are filled, from the first on. A sequence stands in one job of a call.
  size_t Fill(std::span<Job> jobs);

  // How long the calls of Fill since the last call took; 0 without a clock.
  int64_t TakeSpentNs() { return std::exchange(spent_ns_, 0); }

 private:
  // Calls work(i) once for each i below num_items.
  void Share(size_t num_items, grammar::MaskPool::Work work);

  const int32_t threads_;  // 1 without a clock
  const grammar::MaskPool::NowNs now_ns_;
  grammar::MaskPool pool_;
  bool is_started_ = false;
  int64_t spent_ns_ = 0;
};

}  // namespace specd
