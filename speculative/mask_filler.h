// MaskFiller fills the masks of a round's constrained sequences, with several threads where that
// pays.
//
// A mask that was built before is found in a tenth of a microsecond; a new one may take a
// millisecond. The sequences of a round do not depend on each other, so threads share them; a
// MaskPool decides by the time that has passed. FillSome fills for about a millisecond, so a caller
// that serves others too can come back. A sequence for whose masks no memory is left is marked and
// ends in its round; the others are filled. One caller at a time; after Start, no call starts a
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/round.h"
#include "speculative/grammar/mask_pool.h"
#include "speculative/sequence_table.h"

namespace specd {

class MaskFiller {
 public:
  // How long FillSome begins new sequences (estimate: other engines wait meanwhile).
  static constexpr int64_t kSliceNs = 1'000'000;

  // `now_ns` tells the time in nanoseconds, to any thread. If it is null, the caller fills alone
  // and FillSome fills all.
  MaskFiller(int32_t threads, const grammar::MaskPool::NowNs& now_ns);

  // Starts the threads, once. A session without constraints never calls it.
  void Start();

  // A sequence stands in one job of a call.
  struct Job {
    Sequence* sequence = nullptr;
    const Draft* draft = nullptr;
    PlaceEdits* places = nullptr;
  };
  void Fill(std::span<const Job> jobs);
  // Fills the first job and others until kSliceNs have passed. Returns how many, from the first on,
  // are filled.
  size_t FillSome(std::span<const Job> jobs);

 private:
  // Calls work(i) once for each i below num_items.
  void Share(size_t num_items, grammar::MaskPool::Work work);

  const int32_t threads_;  // 1 without a clock
  const grammar::MaskPool::NowNs now_ns_;
  grammar::MaskPool pool_;
  bool is_started_ = false;
};

}  // namespace specd
