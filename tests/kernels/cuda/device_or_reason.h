// DeviceOrReason gives a real device to the cases of the suite "gpu". Without a device, a case
// reports that and passes. Each case makes its own backend and uses it on its own thread.
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

// If there is no device, reports why and returns null; it is an error if SPECD_REQUIRE_GPU is set.
inline std::unique_ptr<Backend> DeviceOrReason() {
  auto device = MakeBackend("cuda");
  if (device.ok()) return std::move(*device);
  const std::string reason(device.status().message());
  REQUIRE_MESSAGE(std::getenv("SPECD_REQUIRE_GPU") == nullptr, reason);
  // The reason must be a missing device and not an error of ours.
  CHECK(absl::IsUnimplemented(device.status()));
  MESSAGE("not compared: ", reason);
  return nullptr;
}

// A driver of the device of DeviceOrReason. REQUIRES: there is one.
inline std::unique_ptr<GpuDriver> DriverOfDevice() {
  std::unique_ptr<GpuDriver> driver = MakeCudaDriver();
  const GpuResult result = driver->UseDevice(0);
  REQUIRE_MESSAGE(result.ok(), result.text());
  return driver;
}

}  // namespace specd
