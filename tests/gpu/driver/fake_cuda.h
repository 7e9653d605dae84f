// FakeCuda is a libcuda.so.1 over fake GPUs, for processes that look for the driver by that name:
// libspecd in an engine.
//
// A test links it instead of the driver and acts as the engine through FakeCuda. Device 0 has all
// features, device 1 no CUDA stream operations on 64-bit words, device 2 no CUDA stream operations
// at all. CUDA streams of a device's context are those of FakeCuda(i).
#pragma once

#include <cstddef>

#include "tests/gpu/driver/fake_gpu_context.h"

namespace specd {

inline constexpr size_t kNumFakeCudaDevices = 3;

// The primary context of the device, for the life of the process.
__attribute__((visibility("default"))) FakeGpuContext& FakeCuda(size_t device_index);

// How often libspecd has registered and unregistered host memory.
struct FakeCudaCounts {
  int registered = 0;
  int unregistered = 0;
};
__attribute__((visibility("default"))) FakeCudaCounts CountFakeCuda();

}  // namespace specd
