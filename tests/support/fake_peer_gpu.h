// A pretended GPU as the other process of gpu_peer.h takes it, and as checks that need a PeerGpu in
// a test take theirs. For one thread.
//
// Kernels are loaded when they are first asked for, which waits for every stream, unless
// CUDA_MODULE_LOADING is EAGER: as a driver may.
#pragma once

#include <functional>
#include <set>

#include "tests/support/fake_gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

class FakePeerGpu final : public PeerGpu {
 public:
  explicit FakePeerGpu(const FakeGpuOptions& options = {}, size_t device_index = 0);

  FakeGpuContext& context() override { return gpu_; }
  GpuResult AllocateVmm(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.AllocateVmm(size_bytes, address);
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.AllocateFromPool(size_bytes, address);
  }
  GpuResult Free(GpuAddress address) override { return gpu_.Free(address); }
  GpuResult LoadKernel(PeerKernel kernel) override;
  GpuResult Launch(GpuStream stream, const PeerLaunch& launch) override;
  GpuResult Capture(GpuStream stream, GpuEvent waited, const PeerLaunch& launch, GpuEvent recorded,
                    std::function<GpuResult()>* replay) override;

 private:
  FakeGpuContext gpu_;
  std::set<PeerKernel> loaded_;
};

}  // namespace specd
