// BorrowedGpuPlatform gives code that opens a context of its own in a test the context that the
// test has. That context must live longer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/borrowed_gpu.h"

namespace specd {

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
