#include "tests/support/cuda_engine_gpu.h"

#include <utility>
#include <vector>

#include "kernels/cuda/context_calls.h"
#include "kernels/cuda/driver_platform.h"
#include "tests/support/borrowed_gpu.h"

namespace specd {

namespace {

class CudaEngineGpu final : public BorrowedGpu<EngineGpu> {
 public:
  CudaEngineGpu(std::unique_ptr<GpuPlatform> platform, std::unique_ptr<GpuContext> context,
                const ContextCalls& calls)
      : BorrowedGpu(context.get()),
        calls_(calls),
        platform_(std::move(platform)),
        context_(std::move(context)) {}

  GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) override {
    return calls_.Run("cuMemAlloc",
                      [&] { return calls_.api().cuMemAlloc_v2(address, size_bytes); });
  }
  GpuResult Free(GpuAddress address) override {
    return calls_.Run("cuMemFree", [&] { return calls_.api().cuMemFree_v2(address); });
  }
  GpuResult CreateStream(GpuStream* stream) override {
    return calls_.Run("cuStreamCreate", [&] {
      return calls_.api().cuStreamCreate(&stream->handle, cuda::kStreamNonBlocking);
    });
  }
  GpuResult DestroyStream(GpuStream stream) override {
    return calls_.Run("cuStreamDestroy",
                      [&] { return calls_.api().cuStreamDestroy_v2(stream.handle); });
  }
  GpuResult Synchronize(GpuStream stream) override {
    return calls_.Run("cuStreamSynchronize",
                      [&] { return calls_.api().cuStreamSynchronize(stream.handle); });
  }
  GpuResult Query(GpuStream stream) override {
    return calls_.Run("cuStreamQuery", [&] { return calls_.api().cuStreamQuery(stream.handle); });
  }
  GpuResult Copy(GpuStream stream, void* target, const void* source, uint64_t size_bytes) override {
    return calls_.Run("cuMemcpyAsync", [&] {
      return calls_.api().cuMemcpyAsync(reinterpret_cast<uintptr_t>(target),
                                        reinterpret_cast<uintptr_t>(source), size_bytes,
                                        stream.handle);
    });
  }

 private:
  const ContextCalls calls_;
  const std::unique_ptr<GpuPlatform> platform_;
  const std::unique_ptr<GpuContext> context_;
};

}  // namespace

std::unique_ptr<EngineGpu> OpenCudaEngineGpu(GpuDevice* device, GpuResult* error) {
  std::unique_ptr<GpuPlatform> platform = MakeCudaPlatform();
  std::vector<GpuDevice> devices;
  *error = platform->ListDevices(&devices);
  if (!error->ok()) return nullptr;
  if (devices.empty()) {
    *error = GpuResult::Error("the driver shows no device", kGpuNoDevice);
    return nullptr;
  }
  *device = devices[0];
  std::unique_ptr<GpuContext> context;
  *error = platform->OpenContext(0, &context);
  const cuda::DriverApi* const api = error->ok() ? cuda::LoadDriver(error) : nullptr;
  if (api == nullptr) return nullptr;
  int ordinal = 0;
  *error = cuda::ResultOf(*api, api->cuDeviceGet(&ordinal, 0), "cuDeviceGet");
  if (!error->ok()) return nullptr;
  // Retained once more, and not given back: the process ends with it.
  cuda::Context primary = nullptr;
  *error = cuda::ResultOf(*api, api->cuDevicePrimaryCtxRetain(&primary, ordinal),
                          "cuDevicePrimaryCtxRetain");
  if (!error->ok()) return nullptr;
  return std::make_unique<CudaEngineGpu>(std::move(platform), std::move(context),
                                         ContextCalls(*api, ordinal, primary));
}

}  // namespace specd
