// HostWords are the Words of kernels/warps/staged_turn.h for tests in which the host acts as the
// device, as in kernels/cuda/staged_kernel.cu.
#pragma once

#include <atomic>
#include <cstdint>

namespace specd {

struct HostWords {
  uint64_t Acquire(const uint64_t* word) const {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(*word)).load(std::memory_order_acquire);
  }
  void Release(uint64_t value, uint64_t* word) const {
    std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
  }
};

}  // namespace specd
