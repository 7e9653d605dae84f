// The engine's library over a pretended device of this process, and what stands in for a CUDA
// runtime beside it: memory of the device, and streams whose work runs when it is asked for.
//
// For tests of Python that puts rounds into a CUDA graph of its own. One thread.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/client/engine_device.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/borrowed_gpu_context.h"
#include "tests/support/fake_gpu_context.h"
#include "tests/support/fake_gpu_driver.h"

namespace specd {
namespace {

// Never destroyed: an engine that Python closes at its end may come later.
struct Device {
  Device() {
    driver.is_imported = [this](const void* place) {
      GpuAllocation allocation;
      return memory.Describe(reinterpret_cast<GpuAddress>(place), &allocation).ok();
    };
  }

  FakeGpuContext memory{FakeGpuOptions(), 0};
  FakeGpu driver;
};

Device& TheDevice() {
  static Device* const device = new Device;
  return *device;
}

}  // namespace

std::unique_ptr<GpuPlatform> MakeEnginePlatform() {
  return std::make_unique<BorrowedGpuPlatform>(&TheDevice().memory);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeEngineBackend(std::string_view name,
                                                           const BackendOptions&) {
  if (name != "cuda") return MakeBackend(name);
  return MakeCudaBackend(std::make_unique<FakeGpuDriver>(&TheDevice().driver));
}

}  // namespace specd

#define PRETENDED extern "C" __attribute__((visibility("default")))

// 0: no memory. Never given back.
PRETENDED uint64_t pretended_allocate(uint64_t size_bytes) {
  specd::GpuAddress address = 0;
  return specd::TheDevice().memory.Allocate(size_bytes, &address).ok() ? address : 0;
}

// From now on a stream of the caller's is capturing, or no longer is.
PRETENDED void pretended_set_capturing(int is_capturing) {
  specd::TheDevice().driver.caller_captures = is_capturing != 0;
}

// Runs what was put on a stream, and with `keep` leaves it there to be run again, as a graph is.
// Returns how much that was; -1 where it failed, or a capture has been spoiled.
PRETENDED int pretended_run(void* stream, int keep) {
  specd::FakeGpu& driver = specd::TheDevice().driver;
  const auto work = driver.others_work.find(stream);
  if (work == driver.others_work.end()) return 0;
  driver.Replay(work->second);
  if (!driver.fault.ok() || !driver.caller_spoiled_by.empty()) {
    std::fprintf(stderr, "pretended device: %s %s\n", std::string(driver.fault.text()).c_str(),
                 driver.caller_spoiled_by.c_str());
    return -1;
  }
  const int count = static_cast<int>(work->second.size());
  if (keep == 0) driver.others_work.erase(work);
  return count;
}
