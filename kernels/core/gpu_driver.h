// GpuDriver: what specd asks of a GPU, as an interface, so that faults can be injected below it and
// the code above it runs where there is no GPU.
//
// Only what CudaBackend uses while it copies host rows over; what processes need to share a device
// is kernels/core/gpu_context.h. A driver serves one device and is used by one thread at a time.
// Implementations: kernels/cuda/cuda_driver.h over the CUDA runtime;
// tests/support/fake_gpu_driver.h in host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/core/fused_round.h"
#include "kernels/core/gpu_result.h"

namespace specd {

class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  // An error where no driver is installed; an empty list where there is one but no device.
  virtual GpuResult ListDevices(std::vector<GpuDevice>* devices) = 0;

  // Makes the device current for the calls that follow, on the calling thread.
  virtual GpuResult UseDevice(size_t index) = 0;

  // Device memory, aligned to 256 bytes. Free(nullptr) does nothing.
  virtual GpuResult Allocate(size_t size_bytes, void** memory) = 0;
  virtual GpuResult Free(void* memory) = 0;

  // Enqueued in order with launches. The host memory must stay as it is until Synchronize; what
  // ToHost fills is valid after it.
  virtual GpuResult ToDevice(void* device, const void* host, size_t size_bytes) = 0;
  virtual GpuResult ToHost(void* host, const void* device, size_t size_bytes) = 0;

  // Enqueues every task of a round. All pointers in it, those inside tasks included, are device
  // memory.
  virtual GpuResult LaunchRound(const FusedRound& round) = 0;

  // The same for rows, a block for each. `workspaces` are, one after another, what
  // ChainWorkspaceBytes gives for the vocabulary and no drafts.
  virtual GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) = 0;

  // Waits for everything enqueued, and reports the first error that any of it had.
  virtual GpuResult Synchronize() = 0;
};

}  // namespace specd
