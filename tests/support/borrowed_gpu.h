// BorrowedGpu<Gpu> forwards the calls of a GpuContext to another one, for tests whose code opens a
// context of its own, and for an EngineGpu over such a context. The other context must live longer.
#pragma once

#include "kernels/core/gpu_context.h"

namespace specd {

template <class Gpu>
class BorrowedGpu : public Gpu {
 public:
  explicit BorrowedGpu(GpuContext* gpu) : gpu_(*gpu) {}

  GpuResult Describe(GpuAddress address, GpuAllocation* allocation) override {
    return gpu_.Describe(address, allocation);
  }
  GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) override {
    return gpu_.Export(address, kind, exported);
  }
  GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) override {
    return gpu_.RegisterHost(host, size_bytes, device);
  }
  GpuResult UnregisterHost(void* host) override { return gpu_.UnregisterHost(host); }
  GpuResult Import(const GpuImport& import, GpuMapping* mapping) override {
    return gpu_.Import(import, mapping);
  }
  GpuResult Close(const GpuMapping& mapping) override { return gpu_.Close(mapping); }
  GpuResult IsCapturing(GpuStream stream, bool* is_capturing) override {
    return gpu_.IsCapturing(stream, is_capturing);
  }
  GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return gpu_.WriteValue(stream, word, width, value);
  }
  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return gpu_.WaitValue(stream, word, width, value);
  }
  GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                               void* argument) override {
    return gpu_.LaunchHostFunction(stream, function, argument);
  }
  GpuResult CreateEvent(GpuEvent* event) override { return gpu_.CreateEvent(event); }
  GpuResult DestroyEvent(GpuEvent event) override { return gpu_.DestroyEvent(event); }
  GpuResult RecordEvent(GpuEvent event, GpuStream stream) override {
    return gpu_.RecordEvent(event, stream);
  }
  GpuResult WaitEvent(GpuStream stream, GpuEvent event) override {
    return gpu_.WaitEvent(stream, event);
  }
  GpuResult Check() override { return gpu_.Check(); }

 private:
  GpuContext& gpu_;
};

using BorrowedGpuContext = BorrowedGpu<GpuContext>;

}  // namespace specd
