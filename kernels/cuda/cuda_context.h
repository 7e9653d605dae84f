// CudaContext is the GpuContext over libcuda, for driver_context.cc and driver_import.cc alone.
//
// driver_context.cc makes it, and describes and exports memory. driver_import.cc maps memory of
// other processes.
#pragma once

#include <fmt/format.h>

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

class CudaContext final : public GpuContext {
 public:
  CudaContext(const cuda::DriverApi& api, int device, cuda::Context context)
      : api_(api), device_(device), context_(context) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() override {
    const int error = api_.cuDevicePrimaryCtxRelease_v2(device_);
    if (error == kGpuOk) return;
    fmt::print(stderr, "specd: {}\n",
               cuda::ResultOf(api_, error, "cuDevicePrimaryCtxRelease").text());
  }

  GpuResult Allocate(uint64_t size_bytes, GpuAddress* address) override {
    return Call("cuMemAlloc", [&] { return api_.cuMemAlloc_v2(address, size_bytes); });
  }
  GpuResult Free(GpuAddress address) override {
    return Call("cuMemFree", [&] { return api_.cuMemFree_v2(address); });
  }

  GpuResult Describe(GpuAddress address, GpuAllocation* allocation) override;
  GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) override;
  GpuResult Import(const GpuImport& import, GpuMapping* mapping) override;
  GpuResult Close(const GpuMapping& mapping) override;

  GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) override {
    GpuResult result = Call("cuMemHostRegister", [&] {
      return api_.cuMemHostRegister_v2(host, size_bytes,
                                       cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap);
    });
    if (!result.ok()) return result;
    result = Call("cuMemHostGetDevicePointer",
                  [&] { return api_.cuMemHostGetDevicePointer_v2(device, host, 0); });
    if (!result.ok()) (void)UnregisterHost(host);
    return result;
  }
  GpuResult UnregisterHost(void* host) override {
    return Call("cuMemHostUnregister", [&] { return api_.cuMemHostUnregister(host); });
  }

  GpuResult CreateStream(GpuStream* stream) override {
    return Call("cuStreamCreate",
                [&] { return api_.cuStreamCreate(&stream->handle, cuda::kStreamNonBlocking); });
  }
  GpuResult DestroyStream(GpuStream stream) override {
    return Call("cuStreamDestroy", [&] { return api_.cuStreamDestroy_v2(stream.handle); });
  }
  GpuResult Synchronize(GpuStream stream) override {
    return Call("cuStreamSynchronize", [&] { return api_.cuStreamSynchronize(stream.handle); });
  }
  GpuResult Query(GpuStream stream) override {
    return Call("cuStreamQuery", [&] { return api_.cuStreamQuery(stream.handle); });
  }

  GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return Call("cuStreamWriteValue", [&] {
      return width == GpuWord::k64 ? api_.cuStreamWriteValue64_v2(stream.handle, word, value, 0)
                                   : api_.cuStreamWriteValue32_v2(stream.handle, word,
                                                                  static_cast<uint32_t>(value), 0);
    });
  }
  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return Call("cuStreamWaitValue", [&] {
      return width == GpuWord::k64
                 ? api_.cuStreamWaitValue64_v2(stream.handle, word, value, cuda::kWaitValueGeq)
                 : api_.cuStreamWaitValue32_v2(stream.handle, word, static_cast<uint32_t>(value),
                                               cuda::kWaitValueGeq);
    });
  }

  GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                               void* argument) override {
    return Call("cuLaunchHostFunc",
                [&] { return api_.cuLaunchHostFunc(stream.handle, function, argument); });
  }

  GpuResult IsCapturing(GpuStream stream, bool* is_capturing) override {
    int status = 0;
    const GpuResult result = Call("cuStreamIsCapturing",
                                  [&] { return api_.cuStreamIsCapturing(stream.handle, &status); });
    *is_capturing = status != cuda::kCaptureNone;
    return result;
  }

  GpuResult Copy(GpuStream stream, void* target, const void* source, uint64_t size_bytes) override {
    return Call("cuMemcpyAsync", [&] {
      return api_.cuMemcpyAsync(reinterpret_cast<uintptr_t>(target),
                                reinterpret_cast<uintptr_t>(source), size_bytes, stream.handle);
    });
  }

  GpuResult CreateEvent(GpuEvent* event) override {
    return Call("cuEventCreate",
                [&] { return api_.cuEventCreate(&event->handle, cuda::kEventDisableTiming); });
  }
  GpuResult CreateSharedEvent(GpuEvent* event) override {
    return Call("cuEventCreate", [&] {
      return api_.cuEventCreate(&event->handle,
                                cuda::kEventInterprocess | cuda::kEventDisableTiming);
    });
  }
  GpuResult ExportEvent(GpuEvent event, GpuHandle* handle) override {
    cuda::Handle bytes;
    const GpuResult result =
        Call("cuIpcGetEventHandle", [&] { return api_.cuIpcGetEventHandle(&bytes, event.handle); });
    if (result.ok()) std::memcpy(handle->data(), &bytes, sizeof(bytes));
    return result;
  }
  GpuResult OpenEvent(const GpuHandle& handle, GpuEvent* event) override {
    return Call("cuIpcOpenEventHandle",
                [&] { return api_.cuIpcOpenEventHandle(&event->handle, HandleOf(handle)); });
  }
  GpuResult DestroyEvent(GpuEvent event) override {
    return Call("cuEventDestroy", [&] { return api_.cuEventDestroy_v2(event.handle); });
  }
  GpuResult RecordEvent(GpuEvent event, GpuStream stream) override {
    return Call("cuEventRecord", [&] { return api_.cuEventRecord(event.handle, stream.handle); });
  }
  GpuResult WaitEvent(GpuStream stream, GpuEvent event) override {
    return Call("cuStreamWaitEvent",
                [&] { return api_.cuStreamWaitEvent(stream.handle, event.handle, 0); });
  }

  // Every call reports the error that broke the context. This call does nothing else, and waits for
  // nothing.
  GpuResult Check() override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return Call("cuMemGetInfo", [&] { return api_.cuMemGetInfo_v2(&free_bytes, &total_bytes); });
  }

 private:
  GpuResult MapVmm(const GpuImport& import, GpuMapping* mapping);
  GpuResult MapPiece(GpuAddress address, const GpuPiece& piece);
  GpuResult CloseVmm(const GpuMapping& mapping);
  GpuResult MapPool(const GpuImport& import, GpuMapping* mapping);

  // Runs `call` with our context current, and restores the caller's: the threads of an engine's
  // process have their own.
  template <class F>
  GpuResult Call(const char* name, F call) {
    int error = api_.cuCtxPushCurrent_v2(context_);
    if (error != kGpuOk) return cuda::ResultOf(api_, error, "cuCtxPushCurrent");
    const GpuResult result = DuringCaptures(name, call);
    cuda::Context ours = nullptr;
    error = api_.cuCtxPopCurrent_v2(&ours);
    if (!result.ok()) return result;
    return cuda::ResultOf(api_, error, "cuCtxPopCurrent");
  }

  // Another thread of an engine may capture in the mode that forbids most calls to all threads. Our
  // calls do not concern that graph, and the exchanged mode tells CUDA so.
  template <class F>
  GpuResult DuringCaptures(const char* name, F call) {
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
