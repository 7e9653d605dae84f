// The functions of libcuda.so.1 that an engine of the staged tests calls, over the runtime of the
// program that loads the library (runtime_api.cc). driver_defaults.cc has the others.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace {

constexpr int kOk = 0;

void* const kPrimaryContext = reinterpret_cast<void*>(1);

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

extern "C" {

int cuInit(unsigned) { return kOk; }
int cuGetErrorName(int, const char** text) {
  *text = "an error of the PTX machine";
  return kOk;
}
int cuGetErrorString(int, const char** text) {
  *text = cudaGetErrorString(cudaErrorUnknown);
  return kOk;
}

int cuDeviceGetCount(int* count) {
  *count = 1;
  return kOk;
}
int cuDeviceGet(int* device, int) {
  *device = 0;
  return kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = kPrimaryContext;
  return kOk;
}
int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }
int cuCtxPushCurrent_v2(void*) { return kOk; }
int cuCtxPopCurrent_v2(void** context) {
  *context = kPrimaryContext;
  return kOk;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return kOk;
}
int cuThreadExchangeStreamCaptureMode(int*) { return kOk; }

int cuMemAlloc_v2(uint64_t* memory, size_t size_bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), size_bytes);
}
int cuMemFree_v2(uint64_t memory) { return cudaFree(reinterpret_cast<void*>(memory)); }
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size_bytes, void* stream) {
  return cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                         size_bytes, cudaMemcpyDefault, StreamOf(stream));
}

int cuStreamCreate(void** stream, unsigned flags) {
  return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), flags);
}
int cuStreamDestroy_v2(void* stream) { return cudaStreamDestroy(StreamOf(stream)); }
int cuStreamSynchronize(void* stream) { return cudaStreamSynchronize(StreamOf(stream)); }
int cuStreamQuery(void* stream) { return cudaStreamQuery(StreamOf(stream)); }
int cuStreamIsCapturing(void* stream, int* status) {
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const int error = cudaStreamIsCapturing(StreamOf(stream), &found);
  *status = found;
  return error;
}
int cuStreamBeginCapture_v2(void* stream, int mode) {
  return cudaStreamBeginCapture(StreamOf(stream), static_cast<cudaStreamCaptureMode>(mode));
}
int cuStreamEndCapture(void* stream, void** graph) {
  return cudaStreamEndCapture(StreamOf(stream), reinterpret_cast<cudaGraph_t*>(graph));
}

int cuGraphInstantiateWithFlags(void** made, void* graph, unsigned long long flags) {
  return cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(made),
                              static_cast<cudaGraph_t>(graph), flags);
}
int cuGraphLaunch(void* graph, void* stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), StreamOf(stream));
}
int cuGraphExecDestroy(void* graph) {
  return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}
int cuGraphDestroy(void* graph) { return cudaGraphDestroy(static_cast<cudaGraph_t>(graph)); }

}  // extern "C"
