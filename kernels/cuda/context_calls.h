// ContextCalls runs calls of the driver in one context, for CudaContext and MemoryImporter.
//
// Each call makes the context current, and restores the caller's context afterwards. Immutable;
// any number of threads may call.
//
//   const GpuResult result = calls.Run("cuMemFree", [&] { return calls.api().cuMemFree_v2(at); });
#pragma once

#include <cstring>

#include "kernels/core/gpu_context.h"
#include "kernels/cuda/driver_api.h"

namespace specd {

static_assert(sizeof(cuda::Handle) == kGpuHandleBytes);

inline cuda::Handle HandleOf(const GpuHandle& bytes) {
  cuda::Handle handle;
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  return handle;
}

class ContextCalls {
 public:
  ContextCalls(const cuda::DriverApi& api, int device, cuda::Context context)
      : api_(api), device_(device), context_(context) {}

  const cuda::DriverApi& api() const { return api_; }
  int device() const { return device_; }

  // Runs `call` with our context current, and restores the caller's: the threads of an engine's
  // process have their own.
  template <class F>
  GpuResult Run(const char* name, F call) const {
    int error = api_.cuCtxPushCurrent_v2(context_);
    if (error != kGpuOk) return cuda::ResultOf(api_, error, "cuCtxPushCurrent");
    const GpuResult result = DuringCaptures(name, call);
    cuda::Context ours = nullptr;
    error = api_.cuCtxPopCurrent_v2(&ours);
    if (!result.ok()) return result;
    return cuda::ResultOf(api_, error, "cuCtxPopCurrent");
  }

 private:
  // Another thread of an engine may capture in the mode that forbids most calls to all threads. Our
  // calls do not concern that graph, and the exchanged mode tells CUDA so.
  template <class F>
  GpuResult DuringCaptures(const char* name, F call) const {
    constexpr const char* kExchange = "cuThreadExchangeStreamCaptureMode";
    int mode = cuda::kCaptureModeRelaxed;
    const GpuResult relaxed =
        cuda::ResultOf(api_, api_.cuThreadExchangeStreamCaptureMode(&mode), kExchange);
    if (!relaxed.ok()) return relaxed;
    const GpuResult result = cuda::ResultOf(api_, call(), name);
    const int error = api_.cuThreadExchangeStreamCaptureMode(&mode);
    return result.ok() ? cuda::ResultOf(api_, error, kExchange) : result;
  }

  const cuda::DriverApi& api_;
  const int device_;
  const cuda::Context context_;
};

}  // namespace specd
