// RoundQueue: rounds that are enqueued before they are known, so that they can be part of a graph
// of the engine's own.
//
// Enqueue puts launches on the engine's stream, which may be capturing. Stage writes a round into
// one of a few areas of pinned memory; the next turn of those launches fetches and runs it, or does
// nothing where none is staged (kernels/warps/staged_turn.h). Collect looks at a word that the
// turn has written to host memory. Neither waits, and after the first Enqueue or Stage, which takes
// all memory, nothing is allocated. Answers are those of CudaBackend::Run, to the bit.
//
// The launches hold addresses of memory that is given back by the destructor: nothing of them may
// run by then, or later. It waits for nobody, because CUDA has no wait for a device on which
// somebody captures, and it drops rounds that are staged and were not run. Not thread-safe, but the
// device may take a round while the next one is being staged.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/core/gpu_driver.h"

namespace specd {

class RoundQueue {
 public:
  // Rounds of the limits. The driver must live longer.
  RoundQueue(GpuDriver* driver, const BackendLimits& limits);
  ~RoundQueue();

  // As Backend's EnqueueStaged, Stage and Collect say.
  absl::Status Enqueue(void* stream, int32_t num_tasks);
  absl::Status Stage(const RoundBatch& batch);
  absl::StatusOr<bool> Collect();

 private:
  struct Memory;

  absl::Status CheckDevice(void* stream) const;
  absl::Status TakeMemory();

  GpuDriver* const driver_;
  const BackendLimits limits_;
  uint64_t num_staged_ = 0;
  uint64_t num_collected_ = 0;
  std::unique_ptr<Memory> memory_;  // null until it is needed
};

}  // namespace specd
