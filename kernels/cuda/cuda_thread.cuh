// CudaThread is the Thread of warp_team.h for kernels on a GPU. Each thread of a one-dimensional
// block has one instance; the block's size is a multiple of 32.
#pragma once

#include <type_traits>

#include "kernels/warps/warp_team.h"

namespace specd {

class CudaThread {
 public:
  __device__ __forceinline__ int32_t lane() const { return static_cast<int32_t>(threadIdx.x) % 32; }
  __device__ __forceinline__ int32_t warp() const { return static_cast<int32_t>(threadIdx.x) / 32; }
  __device__ __forceinline__ int32_t num_warps() const {
    return static_cast<int32_t>(blockDim.x) / 32;
  }
  __device__ __forceinline__ int32_t block() const { return static_cast<int32_t>(blockIdx.x); }
  __device__ __forceinline__ int32_t num_blocks() const { return static_cast<int32_t>(gridDim.x); }
  __device__ __forceinline__ uint32_t Shuffle(uint32_t value, int32_t source) const {
    return __shfl_sync(kWholeWarp, value, source);
  }
  __device__ __forceinline__ uint32_t Ballot(bool predicate) const {
    return __ballot_sync(kWholeWarp, predicate);
  }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }
  __device__ __forceinline__ int32_t LargestOfWarp(int32_t value) const {
    return __reduce_max_sync(kWholeWarp, value);
  }
  __device__ __forceinline__ uint32_t SumOfWarp(uint32_t value) const {
    return __reduce_add_sync(kWholeWarp, value);
  }
  __device__ __forceinline__ void SyncWarp() const { __syncwarp(); }
  // REQUIRES: the block has at most this many warps.
  static constexpr int32_t kSharingWarpsMax = 4;
  template <typename Value>
  __device__ __forceinline__ const Value& Shared(const Value& value) const {
    static_assert(std::is_trivially_copyable_v<Value> && alignof(Value) <= 16);
    __shared__ __align__(16) unsigned char memory[kSharingWarpsMax][sizeof(Value)];
    Value* const shared = reinterpret_cast<Value*>(memory[warp()]);
    __syncwarp();
    if (lane() == 0) *shared = value;
    __syncwarp();
    return *shared;
  }
  __device__ __forceinline__ int32_t Peek(const int32_t* word) const {
    int32_t value = 0;
    if (lane() == 0) {
      asm volatile("ld.relaxed.gpu.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    }
    return static_cast<int32_t>(Shuffle(static_cast<uint32_t>(value), 0));
  }
  __device__ __forceinline__ uint64_t Peek(const uint64_t* word) const {
    return FirstOf(Look(word));
  }
  __device__ __forceinline__ uint64_t Look(const uint64_t* word) const {
    uint64_t value = 0;
    if (lane() == 0) {
      asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    }
    return value;
  }
  __device__ __forceinline__ uint64_t FirstOf(uint64_t value) const {
    const uint32_t low = Shuffle(static_cast<uint32_t>(value), 0);
    return uint64_t{Shuffle(static_cast<uint32_t>(value >> 32), 0)} << 32 | low;
  }
  __device__ __forceinline__ void NoteBits(uint64_t bits, uint64_t* word) const {
    if (lane() == 0) {
      asm volatile("red.relaxed.gpu.or.b64 [%0], %1;" : : "l"(word), "l"(bits) : "memory");
    }
  }
  __device__ __forceinline__ void Note(uint64_t value, uint64_t* word) const {
    if (lane() == 0) {
      asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
    }
  }
  __device__ __forceinline__ void Note(int32_t value, int32_t* word) const {
    if (lane() == 0) {
      asm volatile("st.relaxed.gpu.s32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
    }
  }
  __device__ __forceinline__ int32_t Take(int32_t* counter, int32_t num) const {
    int32_t before = 0;
    if (lane() == 0) {
      asm volatile("atom.relaxed.gpu.add.s32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(counter)
                   : "memory");
      if (before + 1 == num) Note(0, counter);
    }
    return static_cast<int32_t>(Shuffle(static_cast<uint32_t>(before), 0));
  }
  // Lane 0 arrives for the warp. The barriers order the other lanes' writes before its release, and
  // their reads after its acquire.
  __device__ __forceinline__ bool IsLastToArrive(int32_t* counter, int32_t num_arrivals) const {
    int32_t before = 0;
    __syncwarp();
    if (lane() == 0) {
      asm volatile("atom.acq_rel.gpu.add.s32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(counter)
                   : "memory");
      if (before + 1 == num_arrivals) Note(0, counter);
    }
    before = static_cast<int32_t>(Shuffle(static_cast<uint32_t>(before), 0));
    __syncwarp();
    return before + 1 == num_arrivals;
  }

 private:
  static constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
};

}  // namespace specd
