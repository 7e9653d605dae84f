// EngineGpu is a GpuContext that also does for tests what an engine does with its device, and specd
// never does: it allocates, makes CUDA streams, and copies.
//
// Implementations: tests/support/cuda_engine_gpu.h over libcuda;
// tests/gpu/driver/fake_gpu_context.h over memfds. Calls may come from any thread.
#pragma once

#include "kernels/core/gpu_context.h"

namespace specd {

class EngineGpu : public GpuContext {
 public:
  // Memory of kind kIpc, aligned to 256 bytes. Every other process must close the memory before
  // Free; otherwise the behaviour is undefined.
  virtual GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) = 0;
  virtual GpuResult Free(GpuAddress address) = 0;

  virtual GpuResult CreateStream(GpuStream* stream) = 0;
  virtual GpuResult DestroyStream(GpuStream stream) = 0;
  // Waits for everything enqueued.
  virtual GpuResult Synchronize(GpuStream stream) = 0;
  // kGpuNotReady while enqueued work is not done.
  virtual GpuResult Query(GpuStream stream) = 0;
  // Copies between device memory and host memory in any direction. The host memory must stay as it
  // is until the copy is done.
  virtual GpuResult Copy(GpuStream stream, void* target, const void* source,
                         uint64_t size_bytes) = 0;
};

}  // namespace specd
