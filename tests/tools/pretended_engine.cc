// The engine's library over a pretended device of this process, for tests of Python that puts
// rounds into a CUDA graph of its own, or on its CUDA streams.
//
// Beside the library it has a stand-in for a CUDA runtime: memory of the device, and CUDA streams.
// The work of a graph runs on request (pretended_run). A CUDA stream of pretended_create_stream
// runs its work by itself, for rounds of a daemon. One thread.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/client/engine_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/borrowed_gpu_platform.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd {
namespace {

// Never destroyed: Python may close an engine later.
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

BackendRegistry& EngineBackends() {
  static BackendRegistry* const backends = [] {
    BackendEntry cuda =
        CudaBackendEntry([] { return std::make_unique<FakeGpuDriver>(&TheDevice().driver); });
    // The CUDA streams here are those of another pretended device, which runs their work itself.
    cuda.make = [make = cuda.make](const BackendOptions& options) {
      BackendOptions without_stream = options;
      without_stream.cuda_stream = nullptr;
      return make(without_stream);
    };
    return new BackendRegistry({CpuBackendEntry(), cuda});
  }();
  return *backends;
}

}  // namespace specd

#define PRETENDED extern "C" __attribute__((visibility("default")))

// Returns 0 if there is no memory. The memory is never given back.
PRETENDED uint64_t pretended_allocate(uint64_t size_bytes) {
  specd::GpuAddress address = 0;
  return specd::TheDevice().memory.Allocate(size_bytes, &address).ok() ? address : 0;
}

// Says that a CUDA stream of the caller captures, or no longer does.
PRETENDED void pretended_set_capturing(int is_capturing) {
  specd::TheDevice().driver.caller_captures = is_capturing != 0;
}

// The rounds and transforms that have run on the device.
PRETENDED int pretended_num_launches() { return specd::TheDevice().driver.num_launches; }

// The CUDA stream that the last call with one comes after.
PRETENDED void* pretended_marked() { return specd::TheDevice().driver.marked; }

// Returns NULL if there is none. The CUDA stream is never destroyed.
PRETENDED void* pretended_create_stream() {
  specd::GpuStream stream;
  return specd::TheDevice().memory.CreateStream(&stream).ok() ? stream.handle : nullptr;
}

// Enqueues a function of the host, which runs in a thread of the CUDA stream. Returns 0 on success.
PRETENDED int pretended_launch(void* stream, void (*function)(void*), void* argument) {
  return specd::TheDevice().memory.LaunchHostFunction({stream}, function, argument).ok() ? 0 : -1;
}

// Waits until the CUDA stream has done its work. Returns 0 on success.
PRETENDED int pretended_synchronize(void* stream) {
  return specd::TheDevice().memory.Synchronize({stream}).ok() ? 0 : -1;
}

// Runs the work on a CUDA stream. With `keep` the work stays there to run again, as a CUDA graph
// does. Returns the number of operations, or -1 if one failed or a capture was spoiled.
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
