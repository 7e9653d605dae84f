#include "kernels/cuda/driver_context.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "kernels/cuda/context_calls.h"
#include "kernels/cuda/memory_importer.h"

namespace specd {

namespace {

class CudaContext final : public GpuContext {
 public:
  CudaContext(const cuda::DriverApi& api, int device, cuda::Context context)
      : calls_(api, device, context) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() override {
    const int error = calls_.api().cuDevicePrimaryCtxRelease_v2(calls_.device());
    if (error == kGpuOk) return;
    fmt::print(stderr, "specd: {}\n",
               cuda::ResultOf(calls_.api(), error, "cuDevicePrimaryCtxRelease").text());
  }

  GpuResult Describe(GpuAddress address, GpuAllocation* allocation) override;
  GpuResult Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) override;
  GpuResult Import(const GpuImport& import, GpuMapping* mapping) override {
    return importer_.Import(import, mapping);
  }
  GpuResult Close(const GpuMapping& mapping) override { return importer_.Close(mapping); }

  GpuResult RegisterHost(void* host, uint64_t size_bytes, GpuAddress* device) override {
    GpuResult result = calls_.Run("cuMemHostRegister", [&] {
      return calls_.api().cuMemHostRegister_v2(
          host, size_bytes, cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap);
    });
    if (!result.ok()) return result;
    result = calls_.Run("cuMemHostGetDevicePointer",
                        [&] { return calls_.api().cuMemHostGetDevicePointer_v2(device, host, 0); });
    if (!result.ok()) (void)UnregisterHost(host);
    return result;
  }
  GpuResult UnregisterHost(void* host) override {
    return calls_.Run("cuMemHostUnregister",
                      [&] { return calls_.api().cuMemHostUnregister(host); });
  }

  GpuResult WriteValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return calls_.Run("cuStreamWriteValue", [&] {
      return width == GpuWord::k64
                 ? calls_.api().cuStreamWriteValue64_v2(stream.handle, word, value, 0)
                 : calls_.api().cuStreamWriteValue32_v2(stream.handle, word,
                                                        static_cast<uint32_t>(value), 0);
    });
  }
  GpuResult WaitValue(GpuStream stream, GpuAddress word, GpuWord width, uint64_t value) override {
    return calls_.Run("cuStreamWaitValue", [&] {
      return width == GpuWord::k64
                 ? calls_.api().cuStreamWaitValue64_v2(stream.handle, word, value,
                                                       cuda::kWaitValueGeq)
                 : calls_.api().cuStreamWaitValue32_v2(
                       stream.handle, word, static_cast<uint32_t>(value), cuda::kWaitValueGeq);
    });
  }

  GpuResult LaunchHostFunction(GpuStream stream, GpuHostFunction function,
                               void* argument) override {
    return calls_.Run("cuLaunchHostFunc", [&] {
      return calls_.api().cuLaunchHostFunc(stream.handle, function, argument);
    });
  }

  GpuResult IsCapturing(GpuStream stream, bool* is_capturing) override {
    int status = 0;
    const GpuResult result = calls_.Run("cuStreamIsCapturing", [&] {
      return calls_.api().cuStreamIsCapturing(stream.handle, &status);
    });
    *is_capturing = status != cuda::kCaptureNone;
    return result;
  }

  GpuResult CreateEvent(GpuEvent* event) override {
    return calls_.Run("cuEventCreate", [&] {
      return calls_.api().cuEventCreate(&event->handle, cuda::kEventDisableTiming);
    });
  }
  GpuResult DestroyEvent(GpuEvent event) override {
    return calls_.Run("cuEventDestroy",
                      [&] { return calls_.api().cuEventDestroy_v2(event.handle); });
  }
  GpuResult RecordEvent(GpuEvent event, GpuStream stream) override {
    return calls_.Run("cuEventRecord",
                      [&] { return calls_.api().cuEventRecord(event.handle, stream.handle); });
  }
  GpuResult WaitEvent(GpuStream stream, GpuEvent event) override {
    return calls_.Run("cuStreamWaitEvent", [&] {
      return calls_.api().cuStreamWaitEvent(stream.handle, event.handle, 0);
    });
  }

  // Every call reports the error that broke the context. This call does nothing else, and waits for
  // nothing.
  GpuResult Check() override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return calls_.Run("cuMemGetInfo",
                      [&] { return calls_.api().cuMemGetInfo_v2(&free_bytes, &total_bytes); });
  }

 private:
  const ContextCalls calls_;
  MemoryImporter importer_{calls_};
};

GpuResult CudaContext::Describe(GpuAddress address, GpuAllocation* allocation) {
  unsigned memory_type = 0;
  unsigned long long buffer_id = 0;
  int ordinal = -1;
  unsigned ipc = 0;
  unsigned long long handle_types = 0;
  cuda::Pool pool = nullptr;
  cuda::Address base = 0;
  size_t size_bytes = 0;
  cuda::Address mapping_base = 0;
  size_t mapping_bytes = 0;
  int attributes[] = {cuda::kMemoryType,         cuda::kBufferId,           cuda::kDeviceOrdinal,
                      cuda::kIsLegacyIpcCapable, cuda::kAllowedHandleTypes, cuda::kMemoryPool,
                      cuda::kRangeStart,         cuda::kRangeSize,          cuda::kMappingBase,
                      cuda::kMappingSize};
  void* values[] = {&memory_type, &buffer_id, &ordinal,    &ipc,          &handle_types,
                    &pool,        &base,      &size_bytes, &mapping_base, &mapping_bytes};
  static_assert(std::size(attributes) == std::size(values));
  const GpuResult result = calls_.Run("cuPointerGetAttributes", [&] {
    return calls_.api().cuPointerGetAttributes(std::size(attributes), attributes, values, address);
  });
  if (!result.ok()) return result;
  // The call does not fail for an unknown address; it leaves the unknown values unset.
  if (memory_type != cuda::kMemoryTypeDevice || ordinal < 0) {
    return GpuResult::Error("the address is not in device memory", kGpuInvalidValue);
  }
  const bool has_fd = (handle_types & cuda::kHandleTypePosixFd) != 0;
  *allocation = {.base = base,
                 .size_bytes = size_bytes,
                 .device_index = static_cast<size_t>(ordinal),
                 .buffer_id = buffer_id,
                 .is_ipc_exportable = ipc != 0,
                 .is_vmm_exportable = has_fd && pool == nullptr,
                 .is_pool_exportable = has_fd && pool != nullptr};
  if (!allocation->is_ipc_exportable && allocation->is_vmm_exportable) {
    // One reserved range may hold many mappings, and a descriptor names one of them.
    allocation->base = mapping_base;
    allocation->size_bytes = mapping_bytes;
  }
  return GpuResult::Ok();
}

GpuResult CudaContext::Export(GpuAddress address, GpuMemoryKind kind, GpuExport* exported) {
  *exported = {.kind = kind};
  cuda::Handle handle = {};
  GpuResult result = GpuResult::Ok();
  if (kind == GpuMemoryKind::kIpc) {
    result = calls_.Run("cuIpcGetMemHandle",
                        [&] { return calls_.api().cuIpcGetMemHandle(&handle, address); });
  } else if (kind == GpuMemoryKind::kVmm) {
    cuda::AllocationHandle allocation = 0;
    result = calls_.Run("cuMemRetainAllocationHandle", [&] {
      return calls_.api().cuMemRetainAllocationHandle(&allocation,
                                                      reinterpret_cast<void*>(address));
    });
    if (!result.ok()) return result;
    result = calls_.Run("cuMemExportToShareableHandle", [&] {
      return calls_.api().cuMemExportToShareableHandle(&exported->fd, allocation,
                                                       cuda::kHandleTypePosixFd, 0);
    });
    const GpuResult released =
        calls_.Run("cuMemRelease", [&] { return calls_.api().cuMemRelease(allocation); });
    if (result.ok()) result = released;
  } else {
    cuda::Pool pool = nullptr;
    int attribute = cuda::kMemoryPool;
    void* value = &pool;
    result = calls_.Run("cuPointerGetAttributes", [&] {
      return calls_.api().cuPointerGetAttributes(1, &attribute, &value, address);
    });
    if (result.ok()) {
      result = calls_.Run("cuMemPoolExportPointer",
                          [&] { return calls_.api().cuMemPoolExportPointer(&handle, address); });
    }
    if (result.ok()) {
      result = calls_.Run("cuMemPoolExportToShareableHandle", [&] {
        return calls_.api().cuMemPoolExportToShareableHandle(&exported->fd, pool,
                                                             cuda::kHandleTypePosixFd, 0);
      });
    }
  }
  std::memcpy(exported->handle.data(), &handle, sizeof(handle));
  return result;
}

}  // namespace

std::unique_ptr<GpuContext> MakeCudaContext(const cuda::DriverApi& api, int device,
                                            cuda::Context context) {
  return std::make_unique<CudaContext>(api, device, context);
}

}  // namespace specd
