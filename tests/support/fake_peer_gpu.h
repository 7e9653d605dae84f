// A pretended GPU as the other process of gpu_peer.h takes it, and as checks that need a PeerGpu in
// a test take theirs. For one thread.
//
// Kernels are loaded when they are first asked for, which waits for every stream, unless
// CUDA_MODULE_LOADING is EAGER: as a driver may.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "tests/support/fake_gpu_context.h"
#include "tests/support/gpu_peer_worker.h"

namespace specd {

class FakePeerGpu final : public PeerGpu {
 public:
  explicit FakePeerGpu(const FakeGpuOptions& options = {}, size_t device_index = 0);

  FakeGpuContext& context() override { return gpu_; }
  GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address) override {
    const GpuResult result = gpu_.AllocateVmm(piece_bytes, address);
    if (result.ok()) piece_bytes_[*address] = piece_bytes;
    return result;
  }
  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) override {
    return gpu_.AllocateFromPool(size_bytes, address);
  }
  GpuResult Free(GpuAddress address) override;
  GpuResult LoadKernel(PeerKernel kernel) override;
  GpuResult Launch(GpuStream stream, const PeerLaunch& launch) override;
  GpuResult Capture(GpuStream stream, GpuEvent waited, const PeerLaunch& launch, GpuEvent recorded,
                    std::function<GpuResult()>* replay) override;

 private:
  FakeGpuContext gpu_;
  std::map<GpuAddress, std::vector<uint64_t>> piece_bytes_;  // of memory with descriptors
  std::set<PeerKernel> loaded_;
};

}  // namespace specd
