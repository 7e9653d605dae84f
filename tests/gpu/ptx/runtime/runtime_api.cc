// The functions of the CUDA runtime that specd and its tests call, over PretendedDevice. The tests
// link them in the place of libcudart_static.a. A function that is missing here would come from
// that library and fail for want of a driver.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/gpu/ptx/runtime/pretended_device.h"

namespace {

using specd::ptx::LaunchShape;
using specd::ptx::Mark;
using specd::ptx::MemoryKind;
using specd::ptx::PretendedDevice;
using specd::ptx::PretendedGraph;

// An event has the mark of its last record. What waits for it waits for the record before that.
struct PretendedEvent {
  Mark mark;
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

// CUDA keeps an error for cudaGetLastError.
cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

PretendedDevice& Device() { return PretendedDevice::Get(); }
PretendedEvent* EventOf(cudaEvent_t event) { return reinterpret_cast<PretendedEvent*>(event); }
PretendedGraph* GraphOf(void* graph) { return static_cast<PretendedGraph*>(graph); }

// False if there is an attribute that specd does not use.
bool ReadShape(const cudaLaunchConfig_t& config, LaunchShape* shape) {
  *shape = {.grid = config.gridDim.x, .block = config.blockDim.x};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      shape->cluster = attribute.val.clusterDim.x;
    } else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      shape->is_early = attribute.val.programmaticStreamSerializationAllowed != 0;
    } else {
      return false;
    }
  }
  return true;
}

cudaError_t Allocate(void** memory, size_t size_bytes, MemoryKind kind) {
  *memory = Device().Allocate(size_bytes, kind);
  return Keep(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace

extern "C" {

// What the objects of nvcc call before main.
void** __cudaRegisterFatBinary(void* image) { return static_cast<void**>(image); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Device().RegisterKernel(stub, name);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t,
                               cudaStream_t stream) {
  return Keep(Device().Launch(reinterpret_cast<const void*>(kernel),
                              {.grid = grid.x, .block = block.x}, arguments, stream));
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { std::abort(); }  // of <<<>>>
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { std::abort(); }

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub,
                                void** arguments) {
  LaunchShape shape;
  if (!ReadShape(*config, &shape)) return Keep(cudaErrorNotSupported);
  return Keep(Device().Launch(stub, shape, arguments, config->stream));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->ptxVersion = attributes->binaryVersion = Device().arch();
  attributes->maxThreadsPerBlock = 1024;
  return Keep(Device().CheckKernel(stub));
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t*) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int,
                                                                   size_t, unsigned) {
  *count = Device().arch() >= 90 ? 3 : 2;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device != 0) return Keep(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "nvcc's PTX on the CPU");
  std::memcpy(properties->uuid.bytes, "ptx on the cpu..", sizeof(properties->uuid.bytes));
  properties->l2CacheSize = 1 << 20;
  properties->multiProcessorCount = Device().num_processors();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? Device().num_processors() : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t size_bytes) {
  return Allocate(memory, size_bytes, MemoryKind::kDevice);
}
cudaError_t cudaFree(void* memory) { return Keep(Device().Free(memory, MemoryKind::kDevice)); }
cudaError_t cudaHostAlloc(void** memory, size_t size_bytes, unsigned) {
  return Allocate(memory, size_bytes, MemoryKind::kPinned);
}
cudaError_t cudaFreeHost(void* memory) { return Keep(Device().Free(memory, MemoryKind::kPinned)); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return Keep(Device().Copy(to, from, size_bytes, stream));
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size_bytes, cudaStream_t stream) {
  return Keep(Device().Enqueue(stream, [=] {
    std::memset(memory, value, size_bytes);
    return absl::OkStatus();
  }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return Keep(cudaErrorNotSupported);
  *stream = Device().OpenStream();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Keep(Device().CloseStream(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Keep(Device().Synchronize(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return Keep(Device().Query(stream)); }
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = 0;
  return Keep(Device().CheckStream(stream));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  bool is_capturing = false;
  const cudaError_t error = Keep(Device().IsCapturing(stream, &is_capturing));
  *status = is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return error;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return Keep(Device().BeginCapture(stream));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto made = std::make_unique<PretendedGraph>();
  const cudaError_t error = Keep(Device().EndCapture(stream, &made->nodes));
  if (error == cudaSuccess) *graph = reinterpret_cast<cudaGraph_t>(made.release());
  return error;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new PretendedGraph(*GraphOf(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return Keep(Device().LaunchGraph(GraphOf(graph), stream));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete GraphOf(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete GraphOf(graph);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new PretendedEvent);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete EventOf(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Keep(Device().Record(stream, &EventOf(event)->mark));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t start, cudaEvent_t end) {
  const auto from = Device().DoneSince(EventOf(start)->mark);
  const auto to = Device().DoneSince(EventOf(end)->mark);
  if (!from || !to) return Keep(cudaErrorNotReady);
  *elapsed_ms = std::chrono::duration<float, std::milli>(*to - *from).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Keep(Device().EnqueueWait(stream, EventOf(event)->mark));
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "an error of the PTX machine";
}
const char* cudaGetErrorString(cudaError_t) {
  thread_local std::string text;
  text = Device().failure();
  return text.c_str();
}

}  // extern "C"
