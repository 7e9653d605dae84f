// DoneWord: how the host learns that a round is over without a synchronization: it looks at a word
// of pinned memory, which the last launch of the round writes behind everything else of it.
//
// The launch is the one that ends staged rounds (kernels/warps/staged_turn.h), with one area that
// always has a round. Not for several threads at once; the driver must live longer.
#pragma once

#include <cstdint>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/staging.h"

namespace specd {

// The host's side of a word that a device reads and writes at the same time: bodies/staged_turn.h.
void PublishWord(uint64_t value, uint64_t* word);
uint64_t LookAtWord(uint64_t* word);

class DoneWord {
 public:
  // Takes the memory, and makes it what LaunchEnd begins with.
  GpuResult Allocate(GpuDriver* driver);

  // Enqueues, or has captured, the end of a round: behind all of it.
  GpuResult LaunchEnd();

  // After every launch of such an end: waits until it has run, and what ran before it is seen here.
  // The error of a device that has failed instead, on whatever stream.
  GpuResult Await();

  // After a launch of which it is not known whether it ran, or an error of Await; nothing runs now.
  void CatchUp() { num_awaited_ = LookAtWord(plan_.done); }

 private:
  GpuDriver* driver_ = nullptr;
  PinnedMemory word_;
  PinnedMemory first_turn_;  // what turn_ begins with
  DeviceMemory turn_;
  StagedPlan plan_;
  uint64_t num_awaited_ = 0;
};

}  // namespace specd
