// FakePeerGpu is a fake GPU for the other process of gpu_peer.h, and for checks that need a PeerGpu
// in a test. For one thread.
//
// Each kernel is loaded at its first use, which waits for every CUDA stream, as a driver may do. If
// CUDA_MODULE_LOADING is EAGER, kernels are loaded at once.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
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

 private:
  FakeGpuContext gpu_;
  // The pieces of memory with descriptors.
  std::map<GpuAddress, std::vector<uint64_t>> piece_bytes_;
  std::set<PeerKernel> loaded_;
};

}  // namespace specd
