// RoundQueue runs staged rounds for CudaBackend: rounds whose launches are enqueued first, so that
// they can be part of a graph of the engine's own.
//
// Enqueue puts launches on the engine's CUDA stream, which may be capturing. Stage writes a round
// into one of a few areas of pinned memory. The next turn of the launches fetches and runs that
// round; without a staged round it does nothing (kernels/warps/staged_turn.h). Collect looks at a
// word of host memory that the turn has written. No call waits. The first Enqueue or Stage takes
// all memory, and later calls allocate nothing. Answers are those of CudaBackend::Run, to the bit.
//
// The launches hold addresses of memory that the destructor frees, so no launch may run by then, or
// later. The destructor does not wait, because CUDA cannot wait for a device while a thread
// captures on it. It drops staged rounds that have not run. Not thread-safe, but the device may
// take a round while the host stages the next one.
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
  // Serves rounds within the limits. The driver must live longer.
  RoundQueue(GpuDriver* driver, const BackendLimits& limits);
  ~RoundQueue();

  // The functions of Backend with the names EnqueueStaged, Stage and Collect.
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
  std::unique_ptr<Memory> memory_;  // null until the first use
};

}  // namespace specd
