#include "tests/gpu/driver/fake_cuda.h"

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "kernels/cuda/driver_api.h"

namespace specd {

namespace {

std::atomic<int> registered{0};
std::atomic<int> unregistered{0};

FakeGpuOptions Options() {
  FakeGpuOptions options;
  options.devices[1].has_64_bit_words = false;
  options.devices.push_back(
      {.name = "Fake GPU 2", .uuid = "GPU-22222222-2222-2222-2222-222222222222", .has_mps = false});
  return options;
}

// A thread's contexts; what is below them stands for the engine's own.
thread_local std::array<FakeGpuContext*, 8> stack;
thread_local size_t depth = 0;

FakeGpuContext& Current() { return depth > 0 ? *stack[depth - 1] : FakeCuda(0); }

// While a CUDA stream of any context records a graph in PyTorch's mode, CUDA forbids some calls to
// every thread. A thread that has set the relaxed mode may make them.
thread_local int capture_mode = 0;
constexpr int kStreamCaptureUnsupported = 900;

bool IsForbidden() {
  if (capture_mode == cuda::kCaptureModeRelaxed) return false;
  for (size_t i = 0; i < kNumFakeCudaDevices; ++i) {
    if (FakeCuda(i).is_capturing()) return true;
  }
  return false;
}

size_t IndexOf(const FakeGpuContext* context) {
  for (size_t i = 0; i < kNumFakeCudaDevices; ++i) {
    if (context == &FakeCuda(i)) return i;
  }
  return kNumFakeCudaDevices;
}

GpuStream StreamOf(cuda::Stream handle) { return {handle}; }

bool HasStreamOperations() { return &Current() != &FakeCuda(2); }

int Write(cuda::Stream stream, cuda::Address word, GpuWord width, uint64_t value) {
  if (!HasStreamOperations()) return kGpuNotSupported;
  return Current().WriteValue(StreamOf(stream), word, width, value).code();
}

int Wait(cuda::Stream stream, cuda::Address word, GpuWord width, uint64_t value) {
  if (!HasStreamOperations()) return kGpuNotSupported;
  return Current().WaitValue(StreamOf(stream), word, width, value).code();
}

}  // namespace

// Never destroyed: CUDA streams of a process that ends may still wait.
FakeGpuContext& FakeCuda(size_t device_index) {
  static std::array<FakeGpuContext*, kNumFakeCudaDevices> contexts = [] {
    std::array<FakeGpuContext*, kNumFakeCudaDevices> made;
    for (size_t i = 0; i < made.size(); ++i) made[i] = new FakeGpuContext(Options(), i);
    return made;
  }();
  return *contexts[device_index];
}

FakeCudaCounts CountFakeCuda() { return {registered.load(), unregistered.load()}; }

namespace cuda {

extern "C" {

int cuInit(unsigned) { return kGpuOk; }
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_FAKE";
  return kGpuOk;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the pretended device has it";
  return kGpuOk;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(kNumFakeCudaDevices);
  return kGpuOk;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kGpuOk;
}
int cuDeviceGetName(char* name, int size_bytes, int) {
  std::strncpy(name, "Fake", static_cast<size_t>(size_bytes));
  return kGpuOk;
}
int cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  std::memset(uuid, 0x11 * device, sizeof(*uuid));
  return kGpuOk;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == kCanUse64BitStreamMemOps && device == 0;
  return kGpuOk;
}

// Tells device memory from the rest, and knows no other attributes.
int cuPointerGetAttributes(unsigned count, int* attributes, void** values, Address address) {
  for (unsigned i = 0; i < count; ++i) {
    for (size_t device = 0; device < kNumFakeCudaDevices; ++device) {
      GpuAllocation allocation;
      if (!FakeCuda(device).Describe(address, &allocation).ok()) continue;
      if (attributes[i] == kMemoryType) *static_cast<unsigned*>(values[i]) = kMemoryTypeDevice;
      if (attributes[i] == kDeviceOrdinal) *static_cast<int*>(values[i]) = static_cast<int>(device);
    }
  }
  return kGpuOk;
}

int cuDevicePrimaryCtxRetain(Context* context, int device) {
  *context = &FakeCuda(static_cast<size_t>(device));
  return kGpuOk;
}
int cuDevicePrimaryCtxRelease_v2(int) { return kGpuOk; }
int cuCtxPushCurrent_v2(Context context) {
  if (depth == stack.size()) return kGpuInvalidContext;
  stack[depth++] = static_cast<FakeGpuContext*>(context);
  return kGpuOk;
}
int cuCtxPopCurrent_v2(Context* context) {
  if (depth == 0) return kGpuInvalidContext;
  *context = stack[--depth];
  return kGpuOk;
}
int cuCtxGetDevice(int* device) {
  *device = static_cast<int>(IndexOf(&Current()));
  return kGpuOk;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kGpuOk;
}

int cuMemHostRegister_v2(void* host, size_t size_bytes, unsigned) {
  if (IsForbidden()) return kStreamCaptureUnsupported;
  // The pretended driver answers with the address. CUDA has a call of its own for it.
  GpuAddress device = 0;
  const int code = Current().RegisterHost(host, size_bytes, &device).code();
  if (code == kGpuOk) ++registered;
  return code;
}
int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  return Current().FindHost(host, device).code();
}
int cuMemHostUnregister(void* host) {
  if (IsForbidden()) return kStreamCaptureUnsupported;
  ++unregistered;
  return Current().UnregisterHost(host).code();
}

int cuStreamGetCtx(Stream stream, Context* context) {
  // The default stream is that of the context that is current.
  if (stream == nullptr) {
    *context = &Current();
    return kGpuOk;
  }
  for (size_t i = 0; i < kNumFakeCudaDevices; ++i) {
    if (FakeCuda(i).Query(StreamOf(stream)).code() == kGpuInvalidHandle) continue;
    *context = &FakeCuda(i);
    return kGpuOk;
  }
  return kGpuInvalidHandle;
}
int cuStreamIsCapturing(Stream stream, int* status) {
  bool is_capturing = false;
  const int code = Current().IsCapturing(StreamOf(stream), &is_capturing).code();
  *status = is_capturing ? 1 : kCaptureNone;
  return code;
}
int cuStreamWriteValue32_v2(Stream stream, Address word, uint32_t value, unsigned) {
  return Write(stream, word, GpuWord::k32, value);
}
int cuStreamWriteValue64_v2(Stream stream, Address word, uint64_t value, unsigned) {
  return Write(stream, word, GpuWord::k64, value);
}
int cuStreamWaitValue32_v2(Stream stream, Address word, uint32_t value, unsigned) {
  return Wait(stream, word, GpuWord::k32, value);
}
int cuStreamWaitValue64_v2(Stream stream, Address word, uint64_t value, unsigned) {
  return Wait(stream, word, GpuWord::k64, value);
}

int cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  return Current().LaunchHostFunction(StreamOf(stream), function, argument).code();
}
int cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  return Current().WaitEvent(StreamOf(stream), {event}).code();
}
int cuEventCreate(Event* event, unsigned) {
  if (IsForbidden()) return kStreamCaptureUnsupported;
  GpuEvent made;
  const int code = Current().CreateEvent(&made).code();
  *event = made.handle;
  return code;
}
int cuEventRecord(Event event, Stream stream) {
  return Current().RecordEvent({event}, StreamOf(stream)).code();
}
int cuEventDestroy_v2(Event event) { return Current().DestroyEvent({event}).code(); }

}  // extern "C"

}  // namespace cuda

}  // namespace specd
