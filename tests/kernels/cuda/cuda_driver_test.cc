// The CUDA driver itself, if this build has one, and its answers when CUDA refuses.
#include "kernels/cuda/cuda_driver.h"

#include <doctest/doctest.h>

#include <memory>

namespace specd {
namespace {

TEST_SUITE("unit") {
  // Bug: every error of CUDA got the number for errors without a number. A caller could not tell
  // memory that does not exist from a device that failed.
  TEST_CASE("CUDA driver: an error has CUDA's own number") {
    const std::unique_ptr<GpuDriver> driver = MakeCudaDriver();
    if (driver == nullptr) {
      MESSAGE("not looked at: this build has no CUDA");
      return;
    }
    // The number depends on the machine: without a driver it differs from that of a missing device.
    constexpr size_t kNoSuchDevice = 1000;
    const GpuResult refused = driver->UseDevice(kNoSuchDevice);
    REQUIRE_FALSE(refused.ok());
    CAPTURE(refused.text());
    CHECK(refused.code() > kGpuOk);
    if (!driver->UseDevice(0).ok()) return;
    CHECK(refused.code() == kGpuInvalidDevice);
    void* memory = nullptr;
    CHECK(driver->Allocate(size_t{1} << 60, &memory).code() == kGpuOutOfMemory);
  }
}

}  // namespace
}  // namespace specd
