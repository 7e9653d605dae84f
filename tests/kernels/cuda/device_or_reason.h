// A real device, for cases of the suite "gpu", which pass without one and say so. Each case makes
// its own; used by its thread.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_driver.h"

namespace specd {

// Rounds small enough for compute-sanitizer.
inline bool Quick() { return std::getenv("SPECD_GPU_QUICK") != nullptr; }

// Null, and it is said why, where there is no device; an error if SPECD_REQUIRE_GPU is set.
inline std::unique_ptr<Backend> DeviceOrReason() {
  auto device = MakeBackend("cuda");
  if (device.ok()) return std::move(*device);
  const std::string reason(device.status().message());
  REQUIRE_MESSAGE(std::getenv("SPECD_REQUIRE_GPU") == nullptr, reason);
  // It must be for want of a device, and not for an error of ours.
  CHECK(absl::IsUnimplemented(device.status()));
  MESSAGE("not compared: ", reason);
  return nullptr;
}

// A driver of the device that DeviceOrReason has a backend of. REQUIRES: it found one.
inline std::unique_ptr<GpuDriver> DriverOfDevice() {
  std::unique_ptr<GpuDriver> driver = MakeCudaDriver();
  const GpuResult result = driver->UseDevice(0);
  REQUIRE_MESSAGE(result.ok(), result.text());
  return driver;
}

}  // namespace specd
