// BorrowedGpuContext forwards every call to another GpuContext, for code that opens a context of
// its own in a test. The other context must live longer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/core/gpu_context.h"
#include "tests/gpu/driver/fake_gpu_context.h"

namespace specd {

class BorrowedGpuContext : public GpuContext {
 public:
  explicit BorrowedGpuContext(GpuContext* gpu) : gpu_(*gpu) {}

  GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.Allocate(size_bytes, address);
  }
  GpuResult Free(GpuAddress address) override { return gpu_.Free(address); }
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
  GpuResult CreateStream(GpuStream* stream) override { return gpu_.CreateStream(stream); }
  GpuResult DestroyStream(GpuStream stream) override { return gpu_.DestroyStream(stream); }
  GpuResult Synchronize(GpuStream stream) override { return gpu_.Synchronize(stream); }
  GpuResult Query(GpuStream stream) override { return gpu_.Query(stream); }
  GpuResult IsCapturing(GpuStream stream, bool* is_capturing) override {
    return gpu_.IsCapturing(stream, is_capturing);
  }
  GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return gpu_.WriteValue(stream, word, width, value);
  }
  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return gpu_.WaitValue(stream, word, width, value);
  }
  GpuResult Copy(GpuStream stream, void* target, const void* source, uint64_t size_bytes) override {
    return gpu_.Copy(stream, target, source, size_bytes);
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

// A platform with the fake devices; each device has this context.
class BorrowedGpuPlatform final : public GpuPlatform {
 public:
  explicit BorrowedGpuPlatform(GpuContext* gpu) : gpu_(gpu) {}

  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    *devices = FakeGpuOptions().devices;
    return GpuResult::Ok();
  }
  GpuResult FindDevice(GpuStream, size_t* device_index) override {
    *device_index = 0;
    return GpuResult::Ok();
  }
  GpuResult DeviceOf(GpuAddress address, std::optional<size_t>* device_index) override {
    GpuAllocation allocation;
    device_index->reset();
    const GpuResult result = gpu_->Describe(address, &allocation);
    if (result.ok()) *device_index = allocation.device_index;
    // Describe refuses the addresses of the host.
    return result.code() == kGpuInvalidValue ? GpuResult::Ok() : result;
  }
  GpuResult OpenContext(size_t, std::unique_ptr<GpuContext>* context) override {
    *context = std::make_unique<BorrowedGpuContext>(gpu_);
    return GpuResult::Ok();
  }

 private:
  GpuContext* const gpu_;
};

}  // namespace specd
