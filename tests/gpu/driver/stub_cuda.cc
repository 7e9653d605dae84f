#include "tests/gpu/driver/stub_cuda.h"

#include <cstring>
#include <utility>

#include "kernels/cuda/driver_api.h"

namespace specd {

StubCuda& TheStubCuda() {
  static StubCuda stub;
  return stub;
}

int NoteCudaCall(const char* name);

int NoteCudaCall(const char* name) {
  StubCuda& stub = TheStubCuda();
  stub.calls.push_back(name);
  const bool is_question = std::strcmp(name, "cuCtxGetDevice") == 0;
  if (stub.contexts_pushed > 0 && stub.capture_mode != cuda::kCaptureModeRelaxed && !is_question) {
    stub.forbidden.push_back(name);
  }
  const bool is_meant = stub.failing_call == name && stub.calls_before_failing-- <= 0;
  return is_meant ? stub.failing_code : 0;
}

namespace cuda {

namespace {

constexpr Context kContext = nullptr;

void NoteRange(Address address, size_t size_bytes) {
  TheStubCuda().ranges.emplace_back(address, size_bytes);
}

int FdOf(void* shareable) { return static_cast<int>(reinterpret_cast<intptr_t>(shareable)); }

}  // namespace

extern "C" {

int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_STUB";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "as asked for";
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return NoteCudaCall("cuDeviceGetCount");
}
int cuDeviceGetName(char* name, int size_bytes, int) {
  std::strncpy(name, "Stub", static_cast<size_t>(size_bytes));
  return 0;
}
int cuDeviceGetUuid_v2(Uuid* uuid, int) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = 1;
  return attribute == kMpsEnabled ? NoteCudaCall("mps") : 0;
}

int cuDevicePrimaryCtxRetain(Context* context, int) {
  *context = kContext;
  ++TheStubCuda().contexts_retained;
  return NoteCudaCall("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxRelease_v2(int) { return --TheStubCuda().contexts_retained, 0; }
int cuCtxPushCurrent_v2(Context) { return ++TheStubCuda().contexts_pushed, 0; }
int cuCtxPopCurrent_v2(Context*) { return --TheStubCuda().contexts_pushed, 0; }

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, TheStubCuda().capture_mode);
  return 0;
}

int cuPointerGetAttributes(unsigned count, int* attributes, void** values, Address) {
  const StubCuda& stub = TheStubCuda();
  const auto put = [](void* place, const auto& value) {
    std::memcpy(place, &value, sizeof(value));
  };
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case kMemoryType:
        put(values[i], stub.memory_type);
        break;
      case kBufferId:
        put(values[i], uint64_t{77});
        break;
      case kDeviceOrdinal:
        put(values[i], stub.device_ordinal);
        break;
      case kIsLegacyIpcCapable:
        put(values[i], static_cast<int>(stub.is_ipc_capable));
        break;
      case kRangeStart:
        put(values[i], stub.range_base);
        break;
      case kRangeSize:
        put(values[i], stub.range_bytes);
        break;
      case kAllowedHandleTypes:
        put(values[i], stub.handle_types);
        break;
      case kIsManaged:
        put(values[i], static_cast<unsigned>(stub.is_managed));
        break;
      case kMemoryPool:
        put(values[i], stub.pool);
        break;
      case kMappingBase:
        put(values[i], stub.mapping_base);
        break;
      case kMappingSize:
        put(values[i], stub.mapping_bytes);
        break;
      default:
        return 1;
    }
  }
  return NoteCudaCall("cuPointerGetAttributes");
}

int cuMemGetAddressRange_v2(Address* base, size_t* size_bytes, Address) {
  *base = TheStubCuda().range_base;
  *size_bytes = TheStubCuda().range_bytes;
  return NoteCudaCall("cuMemGetAddressRange_v2");
}
int cuIpcOpenMemHandle_v2(Address* address, Handle handle, unsigned flags) {
  *address = TheStubCuda().range_base;
  TheStubCuda().last_value = static_cast<unsigned char>(handle.bytes[63]) + flags * 256;
  return NoteCudaCall("cuIpcOpenMemHandle_v2");
}
int cuMemExportToShareableHandle(void* shareable, AllocationHandle, int, unsigned long long) {
  const int result = NoteCudaCall("cuMemExportToShareableHandle");
  if (result == 0) std::memcpy(shareable, &TheStubCuda().last_fd, sizeof(int));
  return result;
}
int cuMemImportFromShareableHandle(AllocationHandle*, void* shareable, int) {
  TheStubCuda().last_fd = FdOf(shareable);
  TheStubCuda().fds.push_back(FdOf(shareable));
  return NoteCudaCall("cuMemImportFromShareableHandle");
}
int cuMemGetAllocationGranularity(size_t* size_bytes, const AllocationProperties* properties,
                                  int which) {
  // Physical memory of the device, with descriptors; the least that it comes in.
  const bool is_known = properties->type == kAllocationPinned &&
                        properties->handle_types == kHandleTypePosixFd &&
                        properties->location_type == kLocationDevice && which == 0;
  *size_bytes = is_known ? 0x2000 : 0;
  return NoteCudaCall("cuMemGetAllocationGranularity");
}
int cuMemAddressReserve(Address* address, size_t size_bytes, size_t, Address, unsigned long long) {
  *address = 0x70000;
  NoteRange(*address, size_bytes);
  return NoteCudaCall("cuMemAddressReserve");
}
int cuMemMap(Address address, size_t size_bytes, size_t, AllocationHandle, unsigned long long) {
  NoteRange(address, size_bytes);
  return NoteCudaCall("cuMemMap");
}
int cuMemSetAccess(Address address, size_t size_bytes, const Access*, size_t) {
  NoteRange(address, size_bytes);
  return NoteCudaCall("cuMemSetAccess");
}
int cuMemUnmap(Address address, size_t size_bytes) {
  NoteRange(address, size_bytes);
  return NoteCudaCall("cuMemUnmap");
}
int cuMemAddressFree(Address address, size_t size_bytes) {
  NoteRange(address, size_bytes);
  return NoteCudaCall("cuMemAddressFree");
}
int cuMemPoolImportFromShareableHandle(Pool* pool, void* shareable, int, unsigned long long) {
  TheStubCuda().last_fd = FdOf(shareable);
  *pool = &TheStubCuda();
  return NoteCudaCall("cuMemPoolImportFromShareableHandle");
}
int cuMemPoolImportPointer(Address* address, Pool, Handle*) {
  const int result = NoteCudaCall("cuMemPoolImportPointer");
  if (result == 0) *address = TheStubCuda().range_base;
  return result;
}
int cuStreamGetCtx(Stream, Context* context) {
  *context = TheStubCuda().stream_context;
  return NoteCudaCall("cuStreamGetCtx");
}
int cuStreamIsCapturing(Stream, int* status) {
  *status = TheStubCuda().capture_status;
  return NoteCudaCall("cuStreamIsCapturing");
}
int cuStreamWriteValue32_v2(Stream, Address, uint32_t value, unsigned) {
  TheStubCuda().last_value = value;
  return NoteCudaCall("cuStreamWriteValue32_v2");
}
int cuStreamWriteValue64_v2(Stream, Address, uint64_t value, unsigned) {
  TheStubCuda().last_value = value;
  return NoteCudaCall("cuStreamWriteValue64_v2");
}
int cuStreamWaitValue32_v2(Stream, Address, uint32_t, unsigned flags) {
  TheStubCuda().last_value = flags;
  return NoteCudaCall("cuStreamWaitValue32_v2");
}
int cuStreamWaitValue64_v2(Stream, Address, uint64_t, unsigned flags) {
  TheStubCuda().last_value = flags;
  return NoteCudaCall("cuStreamWaitValue64_v2");
}
int cuEventCreate(Event*, unsigned flags) {
  TheStubCuda().last_value = flags;
  return NoteCudaCall("cuEventCreate");
}

}  // extern "C"

}  // namespace cuda

}  // namespace specd
