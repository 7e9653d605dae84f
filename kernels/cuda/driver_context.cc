#include "kernels/cuda/driver_context.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

namespace specd {

namespace {

using cuda::DriverApi;

static_assert(sizeof(cuda::Handle) == kGpuHandleBytes);

cuda::Handle HandleOf(const GpuHandle& bytes) {
  cuda::Handle handle;
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  return handle;
}

// Descriptors travel through the driver as pointers that hold their number.
void* ShareableOf(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

class CudaContext final : public GpuContext {
 public:
  CudaContext(const DriverApi& api, int device, cuda::Context context)
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

  // Every call reports what broke the context; this one does nothing else, and waits for nothing.
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

  // Runs `call` with our context current, and leaves the caller's as it was: in an engine's process
  // its threads have theirs.
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

  // Another thread of an engine may record a graph in the mode that forbids most calls to all
  // threads. Ours have nothing to do with the graph, and the thread says so.
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

  const DriverApi& api_;
  const int device_;
  const cuda::Context context_;
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
  const GpuResult result = Call("cuPointerGetAttributes", [&] {
    return api_.cuPointerGetAttributes(std::size(attributes), attributes, values, address);
  });
  if (!result.ok()) return result;
  // The call does not fail for an address that it knows nothing of; it leaves what it knows not.
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
    // One reserved range may hold many mappings, and a descriptor stands for one of them.
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
    result = Call("cuIpcGetMemHandle", [&] { return api_.cuIpcGetMemHandle(&handle, address); });
  } else if (kind == GpuMemoryKind::kVmm) {
    cuda::AllocationHandle allocation = 0;
    result = Call("cuMemRetainAllocationHandle", [&] {
      return api_.cuMemRetainAllocationHandle(&allocation, reinterpret_cast<void*>(address));
    });
    if (!result.ok()) return result;
    result = Call("cuMemExportToShareableHandle", [&] {
      return api_.cuMemExportToShareableHandle(&exported->fd, allocation, cuda::kHandleTypePosixFd,
                                               0);
    });
    const GpuResult released = Call("cuMemRelease", [&] { return api_.cuMemRelease(allocation); });
    if (result.ok()) result = released;
  } else {
    cuda::Pool pool = nullptr;
    int attribute = cuda::kMemoryPool;
    void* value = &pool;
    result = Call("cuPointerGetAttributes",
                  [&] { return api_.cuPointerGetAttributes(1, &attribute, &value, address); });
    if (result.ok()) {
      result = Call("cuMemPoolExportPointer",
                    [&] { return api_.cuMemPoolExportPointer(&handle, address); });
    }
    if (result.ok()) {
      result = Call("cuMemPoolExportToShareableHandle", [&] {
        return api_.cuMemPoolExportToShareableHandle(&exported->fd, pool, cuda::kHandleTypePosixFd,
                                                     0);
      });
    }
  }
  std::memcpy(exported->handle.data(), &handle, sizeof(handle));
  return result;
}

GpuResult CudaContext::Import(const GpuImport& import, GpuMapping* mapping) {
  *mapping = {.kind = import.kind};
  if (import.kind == GpuMemoryKind::kVmm) return MapVmm(import, mapping);
  if (import.kind == GpuMemoryKind::kPool) return MapPool(import, mapping);
  const GpuResult result = Call("cuIpcOpenMemHandle", [&] {
    return api_.cuIpcOpenMemHandle_v2(&mapping->address, HandleOf(import.handle),
                                      cuda::kIpcLazyPeerAccess);
  });
  if (!result.ok()) return result;
  cuda::Address base = 0;
  size_t size_bytes = 0;
  const GpuResult measured = Call("cuMemGetAddressRange", [&] {
    return api_.cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
  });
  if (!measured.ok()) {
    (void)Close(*mapping);
    return measured;
  }
  mapping->size_bytes = base + size_bytes - mapping->address;
  return result;
}

GpuResult CudaContext::MapVmm(const GpuImport& import, GpuMapping* mapping) {
  uint64_t size_bytes = 0;
  for (const GpuPiece& piece : import.pieces) size_bytes += piece.size_bytes;
  mapping->piece_bytes.reserve(import.pieces.size());  // nothing may throw behind a mapping
  GpuResult result = Call("cuMemAddressReserve", [&] {
    return api_.cuMemAddressReserve(&mapping->address, size_bytes, 0, 0, 0);
  });
  if (!result.ok()) return result;
  mapping->size_bytes = size_bytes;
  GpuAddress next = mapping->address;
  for (const GpuPiece& piece : import.pieces) {
    result = MapPiece(next, piece);
    if (!result.ok()) break;
    mapping->piece_bytes.push_back(piece.size_bytes);
    next += piece.size_bytes;
  }
  if (result.ok()) {
    const cuda::Access access = {cuda::kLocationDevice, device_, cuda::kAccessReadWrite};
    result = Call("cuMemSetAccess",
                  [&] { return api_.cuMemSetAccess(mapping->address, size_bytes, &access, 1); });
  }
  if (result.ok()) return result;
  (void)CloseVmm(*mapping);
  const size_t num_mapped = mapping->piece_bytes.size();
  if (num_mapped == import.pieces.size()) return result;
  return GpuResult::Error(
      fmt::format("piece {} of {}: {}", num_mapped + 1, import.pieces.size(), result.text()),
      result.code());
}

GpuResult CudaContext::MapPiece(GpuAddress address, const GpuPiece& piece) {
  cuda::AllocationHandle allocation = 0;
  GpuResult result = Call("cuMemImportFromShareableHandle", [&] {
    return api_.cuMemImportFromShareableHandle(&allocation, ShareableOf(piece.fd),
                                               cuda::kHandleTypePosixFd);
  });
  if (!result.ok()) return result;
  result =
      Call("cuMemMap", [&] { return api_.cuMemMap(address, piece.size_bytes, 0, allocation, 0); });
  // A mapping keeps the allocation; the handle is of no more use.
  const GpuResult released = Call("cuMemRelease", [&] { return api_.cuMemRelease(allocation); });
  if (!result.ok() || released.ok()) return result;
  (void)Call("cuMemUnmap", [&] { return api_.cuMemUnmap(address, piece.size_bytes); });
  return released;
}

// What is mapped is unmapped as it was mapped: piece by piece. An address that still has a mapping
// cannot be freed.
GpuResult CudaContext::CloseVmm(const GpuMapping& mapping) {
  GpuResult result = GpuResult::Ok();
  GpuAddress next = mapping.address;
  for (const uint64_t piece_bytes : mapping.piece_bytes) {
    const GpuResult unmapped =
        Call("cuMemUnmap", [&] { return api_.cuMemUnmap(next, piece_bytes); });
    if (result.ok()) result = unmapped;
    next += piece_bytes;
  }
  if (!result.ok()) return result;
  return Call("cuMemAddressFree",
              [&] { return api_.cuMemAddressFree(mapping.address, mapping.size_bytes); });
}

GpuResult CudaContext::MapPool(const GpuImport& import, GpuMapping* mapping) {
  GpuResult result = Call("cuMemPoolImportFromShareableHandle", [&] {
    return api_.cuMemPoolImportFromShareableHandle(&mapping->pool, ShareableOf(import.pieces[0].fd),
                                                   cuda::kHandleTypePosixFd, 0);
  });
  if (!result.ok()) return result;
  cuda::Handle handle = HandleOf(import.handle);
  result = Call("cuMemPoolImportPointer", [&] {
    return api_.cuMemPoolImportPointer(&mapping->address, mapping->pool, &handle);
  });
  size_t size_bytes = 0;
  if (result.ok()) {
    cuda::Address base = 0;
    result = Call("cuMemGetAddressRange", [&] {
      return api_.cuMemGetAddressRange_v2(&base, &size_bytes, mapping->address);
    });
    mapping->size_bytes = base + size_bytes - mapping->address;
  }
  if (!result.ok()) (void)Close(*mapping);
  return result;
}

GpuResult CudaContext::Close(const GpuMapping& mapping) {
  if (mapping.kind == GpuMemoryKind::kIpc) {
    return Call("cuIpcCloseMemHandle", [&] { return api_.cuIpcCloseMemHandle(mapping.address); });
  }
  if (mapping.kind == GpuMemoryKind::kVmm) return CloseVmm(mapping);
  GpuResult result = GpuResult::Ok();
  if (mapping.address != 0) {
    // The free of an importer must be done before the exporter's; this one waits.
    result = Call("cuMemFree", [&] { return api_.cuMemFree_v2(mapping.address); });
  }
  const GpuResult destroyed =
      Call("cuMemPoolDestroy", [&] { return api_.cuMemPoolDestroy(mapping.pool); });
  return result.ok() ? destroyed : result;
}

}  // namespace

std::unique_ptr<GpuContext> MakeCudaContext(const DriverApi& api, int device,
                                            cuda::Context context) {
  return std::make_unique<CudaContext>(api, device, context);
}

}  // namespace specd
