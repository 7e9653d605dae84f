// A pretended GPU as the other process of gpu_peer.h takes it, and as checks that need a PeerGpu in
// a test take theirs. As safe as FakeGpuContext.
#pragma once

#include "tests/support/fake_gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

class FakePeerGpu final : public PeerGpu {
 public:
  explicit FakePeerGpu(const FakeGpuOptions& options = {}, size_t device_index = 0)
      : gpu_(options, device_index) {}

  FakeGpuContext& context() override { return gpu_; }
  GpuResult AllocateVmm(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.AllocateVmm(size_bytes, address);
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.AllocateFromPool(size_bytes, address);
  }
  GpuResult Free(GpuAddress address) override { return gpu_.Free(address); }

 private:
  FakeGpuContext gpu_;
};

}  // namespace specd
