// The CUDA driver itself, where this build has one: what it answers when CUDA refuses.
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
    // Which of CUDA's numbers depends on what there is instead: no driver, or no such device.
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
