// DoneWord tells the host that a round is done, for CudaBackend, without a synchronization.
//
// The last launch of a round writes a word of pinned memory after all other work of the round, and
// the host polls that word. The launch is the one that ends staged rounds
// (kernels/warps/staged_turn.h), with one area that always has a round. Not for several threads at
// once; the driver must live longer.
#pragma once

#include <cstdint>

#include "kernels/core/gpu_driver.h"
#include "kernels/cuda/upload_arena.h"

namespace specd {

// The host's side of a word that a device reads and writes at the same time:
// kernels/warps/staged_turn.h.
void PublishWord(uint64_t value, uint64_t* word);
uint64_t LookAtWord(uint64_t* word);

class DoneWord {
 public:
  // Takes the memory, and sets the turn to the state that LaunchEnd expects.
  GpuResult Allocate(GpuDriver* driver);

  // Enqueues or captures the end of a round, after all its work.
  GpuResult LaunchEnd();

  // Waits until the enqueued end has run. All work before the end is then visible here. If the
  // device has failed on any CUDA stream, returns its error. Call once after every launch of an
  // end.
  GpuResult Await();

  // Call after an error of Await, or after a launch that may not have run. REQUIRES: no launch is
  // running.
  void CatchUp() { num_awaited_ = LookAtWord(plan_.done); }

 private:
  GpuDriver* driver_ = nullptr;
  PinnedMemory word_;
  PinnedMemory first_turn_;  // the initial state of turn_
  DeviceMemory turn_;
  StagedPlan plan_;
  uint64_t num_awaited_ = 0;
};

}  // namespace specd
