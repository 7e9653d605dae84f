// A GpuDriver without a GPU: device memory is host memory, the kernel is the emulated block, and
// any call can be made to fail.
//
// Device memory is filled with poison and checked for leaks: num_allocations() is what is not
// freed. Copies to the host take place at Synchronize, as they may on a device.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/gpu_driver.h"

namespace specd {

// Outlives the driver, so that a test can look after the backend has taken it.
struct FakeGpu {
  std::vector<GpuDevice> devices{{"Fake", "GPU-0"}};
  std::string failing_call;  // this method, by name, fails ...
  int failing_after = 0;     // ... after this many successes
  std::map<void*, std::unique_ptr<std::vector<uint64_t>>> allocations;
  int num_launches = 0;
  int32_t num_threads = 64;  // of the emulated block
};

class FakeGpuDriver final : public GpuDriver {
 public:
  explicit FakeGpuDriver(FakeGpu* gpu) : gpu_(gpu) {}

  GpuResult ListDevices(std::vector<GpuDevice>* devices) override;
  GpuResult UseDevice(size_t index) override;
  GpuResult Allocate(size_t size_bytes, void** memory) override;
  GpuResult Free(void* memory) override;
  GpuResult ToDevice(void* device, const void* host, size_t size_bytes) override;
  GpuResult ToHost(void* host, const void* device, size_t size_bytes) override;
  GpuResult LaunchChains(const RoundBatch& batch) override;
  GpuResult Synchronize() override;

 private:
  GpuResult Call(const std::string& name);

  FakeGpu* gpu_;
  std::vector<std::function<void()>> pending_;
};

}  // namespace specd
