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

#include "kernels/core/gpu_result.h"
#include "kernels/core/round.h"

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

  // Enqueues every task of the batch, a block for each. All pointers in the batch, those inside
  // tasks included, are device memory, as is `workspaces`: for each task the bytes that
  // ChainWorkspaceBytes gives for the vocabulary and max_draft, one after another.
  virtual GpuResult LaunchChains(const RoundBatch& batch, int32_t max_draft, void* workspaces) = 0;

  // The same for rows. `workspaces` are those of max_draft 0.
  virtual GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) = 0;

  // Waits for everything enqueued, and reports the first error that any of it had.
  virtual GpuResult Synchronize() = 0;
};

}  // namespace specd
