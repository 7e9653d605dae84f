#include "kernels/cuda/staging.h"

#include <fmt/format.h>

#include <algorithm>

namespace specd {

GpuResult DeviceMemory::Allocate(GpuDriver* driver, size_t size_bytes) {
  Release();
  driver_ = driver;
  // A zero-sized allocation is an error for some drivers; no round needs to know.
  return driver->Allocate(std::max<size_t>(size_bytes, 1), &memory_);
}

void DeviceMemory::Release() {
  if (memory_ == nullptr) return;
  // Nothing can be done about memory that cannot be given back, but it must not pass unseen. On
  // stderr, because embedded in an engine there is no logger of ours.
  const GpuResult result = driver_->Free(memory_);
  if (!result.ok()) fmt::print(stderr, "specd: freeing device memory: {}\n", result.text());
  memory_ = nullptr;
}

GpuResult StagingArena::Resize(GpuDriver* driver, size_t size_bytes) {
  host_.assign(Aligned(size_bytes), 0);
  Clear();
  return device_.Allocate(driver, host_.size());
}

GpuResult StagingArena::ToDevice() {
  return device_.driver()->ToDevice(device_.get(), host_.data(), used_);
}

GpuResult StagingArena::ToHost(size_t size_bytes) {
  return device_.driver()->ToHost(host_.data(), device_.get(), size_bytes);
}

}  // namespace specd
