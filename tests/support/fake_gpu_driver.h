// A GpuDriver without a GPU: device memory is host memory, a kernel is emulated blocks, and any
// call can be made to fail.
//
// Device memory is filled with poison; `allocations` is what is not freed. Kernels are given no
// address of host memory, and a copy no device address for a host's. Copies to the host take place
// at Synchronize, as they may on a device.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/gpu_driver.h"
#include "tests/support/emulated_block.h"

namespace specd {

// Outlives the driver, so that a test can look after the backend has taken it.
struct FakeGpu {
  std::vector<GpuDevice> devices{{"Fake", "GPU-00000000-0000-0000-0000-000000000000"}};
  std::string failing_call;  // this method, by name, fails ...
  int failing_after = 0;     // ... after this many successes
  std::map<void*, std::unique_ptr<std::vector<uint64_t>>> allocations;
  // Device memory that others allocated; none where this is empty.
  std::function<bool(const void*)> is_imported;
  std::function<void()>
      on_launch;  // called after the kernel of a round, before anything comes back
  int num_launches = 0;
  int32_t num_threads = 64;  // of an emulated block
  int32_t num_blocks = 3;    // of the launch of a round
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
  GpuResult LaunchRound(const FusedRound& round) override;
  GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) override;
  GpuResult Synchronize() override;

 private:
  GpuResult Call(const std::string& name);
  bool IsDeviceMemory(const void* address) const;
  // Emulated kernels could read host memory, as real ones cannot. So what they are given is looked
  // through: every address must be null or in device memory.
  GpuResult CheckAddresses(const char* what, std::initializer_list<const void*> addresses) const;
  GpuResult CheckTask(const ChainTask& task) const;
  // One emulated block for each i, with its workspace poisoned.
  GpuResult RunBlocks(
      int32_t num_blocks, int32_t vocab_size, int32_t max_draft, void* workspaces,
      const std::function<void(EmulatedTeam&, const ChainWorkspace&, int32_t i)>& body);

  FakeGpu* gpu_;
  std::vector<std::function<void()>> pending_;
};

}  // namespace specd
