#include "kernels/cuda/launch.cuh"
#include "tests/gpu/attach/cuda_peer_kernels.h"

namespace specd {

namespace {

constexpr int kLanes = 1024;

class CudaDevice {
 public:
  __device__ explicit CudaDevice(unsigned long long* shared) : shared_(shared) {}

  __device__ __forceinline__ uint64_t lane() const { return threadIdx.x; }
  __device__ __forceinline__ uint64_t num_lanes() const { return blockDim.x; }
  // Reads past every cache that belongs to this block alone, so that a sum has the present values.
  __device__ __forceinline__ uint64_t Read(const uint64_t* word) const {
    uint64_t value = 0;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ __forceinline__ uint64_t Acquire(const uint64_t* word) const {
    uint64_t value = 0;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ __forceinline__ void Release(uint64_t value, uint64_t* word) const {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
  }
  __device__ __forceinline__ uint64_t NowNs() const {
    uint64_t now_ns = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns) : : "memory");
    return now_ns;
  }
  __device__ uint64_t SumOfAll(uint64_t own) const {
    __syncthreads();
    if (threadIdx.x == 0) *shared_ = 0;
    __syncthreads();
    atomicAdd(shared_, static_cast<unsigned long long>(own));
    __syncthreads();
    return *shared_;
  }
  __device__ uint64_t OfFirst(uint64_t own) const {
    __syncthreads();
    if (threadIdx.x == 0) *shared_ = own;
    __syncthreads();
    return *shared_;
  }

 private:
  unsigned long long* shared_;
};

__global__ void __launch_bounds__(kLanes) PeerReadKernel(PeerLaunch launch) {
  __shared__ unsigned long long shared;
  RunPeerRead(CudaDevice(&shared), launch);
}

__global__ void PeerEchoKernel(PeerLaunch launch) { RunPeerEcho(CudaDevice(nullptr), launch); }

}  // namespace

cudaError_t LoadPeerKernel(PeerKernel kernel) {
  cudaFuncAttributes attributes;
  return kernel == PeerKernel::kRead ? cudaFuncGetAttributes(&attributes, PeerReadKernel)
                                     : cudaFuncGetAttributes(&attributes, PeerEchoKernel);
}

cudaError_t EnqueuePeerKernel(const PeerLaunch& launch, cudaStream_t stream) {
  return launch.kernel == PeerKernel::kRead ? Launch(1, kLanes, stream, PeerReadKernel, launch)
                                            : Launch(1, 1, stream, PeerEchoKernel, launch);
}

}  // namespace specd
