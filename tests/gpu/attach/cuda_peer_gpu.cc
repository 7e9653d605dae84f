#include "tests/gpu/attach/cuda_peer_gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/driver_api.h"
#include "tests/gpu/attach/cuda_peer_kernels.h"
#include "tests/support/cuda_engine_gpu.h"

namespace specd {

namespace {

using cuda::DriverApi;

// Finds functions that specd itself never calls. The library is loaded already, and the types are
// <cuda.h>'s.
template <class Function>
Function* Symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

class CudaPeerGpu final : public PeerGpu {
 public:
  CudaPeerGpu(const DriverApi& api, std::unique_ptr<EngineGpu> context)
      : api_(api), context_(std::move(context)) {}
  CudaPeerGpu(const CudaPeerGpu&) = delete;
  CudaPeerGpu& operator=(const CudaPeerGpu&) = delete;

  // The primary context is current in this thread from here on; the process ends with it.
  GpuResult MakeCurrent() {
    GpuResult result = Call(api_.cuDeviceGet(&device_, 0), "cuDeviceGet");
    cuda::Context context = nullptr;
    if (result.ok()) {
      result = Call(api_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
    }
    if (result.ok()) result = Call(api_.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
    // The runtime, which has the kernels, looks at CUDA_MODULE_LOADING at its first call.
    return result.ok() ? CallRuntime(cudaFree(nullptr), "cudaFree") : result;
  }

  EngineGpu& context() override { return *context_; }

  GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address) override {
    const auto measure =
        Symbol<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
    const auto create = Symbol<decltype(cuMemCreate)>("cuMemCreate");
    if (measure == nullptr || create == nullptr) return Missing("cuMemCreate");
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    size_t granularity = 0;
    GpuResult result = Call(measure(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                            "cuMemGetAllocationGranularity");
    if (!result.ok()) return result;
    uint64_t size_bytes = 0;
    for (const uint64_t piece : piece_bytes) {
      if (piece % granularity != 0) {
        return GpuResult::Error("not a multiple of the granularity", kGpuInvalidValue);
      }
      size_bytes += piece;
    }
    result = Call(api_.cuMemAddressReserve(address, size_bytes, 0, 0, 0), "cuMemAddressReserve");
    if (!result.ok()) return result;
    GpuAddress next = *address;
    for (const uint64_t piece : piece_bytes) {
      CUmemGenericAllocationHandle handle = 0;
      result = Call(create(&handle, piece, &properties, 0), "cuMemCreate");
      if (!result.ok()) return result;
      result = Call(api_.cuMemMap(next, piece, 0, handle, 0), "cuMemMap");
      const GpuResult released = Call(api_.cuMemRelease(handle), "cuMemRelease");
      if (!result.ok() || !released.ok()) return result.ok() ? released : result;
      next += piece;
    }
    const cuda::Access access = {cuda::kLocationDevice, device_, cuda::kAccessReadWrite};
    result = Call(api_.cuMemSetAccess(*address, size_bytes, &access, 1), "cuMemSetAccess");
    if (result.ok()) piece_bytes_[*address] = piece_bytes;
    return result;
  }

  GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) override {
    const auto create = Symbol<decltype(cuMemPoolCreate)>("cuMemPoolCreate");
    const auto allocate = Symbol<decltype(cuMemAllocFromPoolAsync)>("cuMemAllocFromPoolAsync");
    if (create == nullptr || allocate == nullptr) return Missing("cuMemPoolCreate");
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    CUmemoryPool pool = nullptr;
    GpuResult result = Call(create(&pool, &properties), "cuMemPoolCreate");
    if (!result.ok()) return result;
    CUdeviceptr memory = 0;
    result = Call(allocate(&memory, size_bytes, pool, nullptr), "cuMemAllocFromPoolAsync");
    if (result.ok()) result = Call(api_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    *address = memory;
    return result;
  }

  GpuResult Free(GpuAddress address) override {
    const auto pieces = piece_bytes_.find(address);
    if (pieces == piece_bytes_.end()) return context_->Free(address);
    GpuAddress next = address;
    for (const uint64_t piece : pieces->second) {
      const GpuResult result = Call(api_.cuMemUnmap(next, piece), "cuMemUnmap");
      if (!result.ok()) return result;
      next += piece;
    }
    piece_bytes_.erase(pieces);
    return Call(api_.cuMemAddressFree(address, next - address), "cuMemAddressFree");
  }

  GpuResult LoadKernel(PeerKernel kernel) override {
    return CallRuntime(LoadPeerKernel(kernel), "loading a kernel");
  }
  GpuResult Launch(GpuStream stream, const PeerLaunch& launch) override {
    return CallRuntime(EnqueuePeerKernel(launch, static_cast<cudaStream_t>(stream.handle)),
                       "launching a kernel");
  }

 private:
  GpuResult Call(int error, const char* name) const { return cuda::ResultOf(api_, error, name); }
  static GpuResult CallRuntime(cudaError_t error, const char* name) {
    if (error == cudaSuccess) return GpuResult::Ok();
    return GpuResult::Error(fmt::format("{}: {} = {} ({})", name, cudaGetErrorName(error),
                                        static_cast<int>(error), cudaGetErrorString(error)),
                            error);
  }
  static GpuResult Missing(const char* name) {
    return GpuResult::Error(std::string("this driver has no ") + name, kGpuNotSupported);
  }

  const DriverApi& api_;
  const std::unique_ptr<EngineGpu> context_;
  int device_ = 0;
  std::map<GpuAddress, std::vector<uint64_t>> piece_bytes_;  // for memory with descriptors
};

}  // namespace

std::unique_ptr<PeerGpu> MakeCudaPeerGpu(GpuDevice* device, GpuResult* error) {
  std::unique_ptr<EngineGpu> context = OpenCudaEngineGpu(device, error);
  const DriverApi* const api = context != nullptr ? cuda::LoadDriver(error) : nullptr;
  if (api == nullptr) return nullptr;
  auto gpu = std::make_unique<CudaPeerGpu>(*api, std::move(context));
  *error = gpu->MakeCurrent();
  if (!error->ok()) return nullptr;
  return gpu;
}

}  // namespace specd
